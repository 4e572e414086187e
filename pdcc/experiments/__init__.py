"""Studies with known truth, benchmarks over methods and data, and the demo."""
