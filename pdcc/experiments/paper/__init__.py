"""The paper's own data and figures."""
