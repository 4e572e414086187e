# `make demo` and `make test` each work as the only command on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 2

.PHONY: demo test test-slow campaign check format docs pictures bench bench-speed bench-synthetic bench-bank bench-sbc bench-ssc bench-human bench-default bench-baselines bench-tables clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# torch first, and exactly this one: an open request may bring another build with gigabytes of GPU libraries.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/pdcc demo

# One thread each: two processes on two cores, and threads that wait for a core cost more than they compute.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

# What takes long: notebooks, pages, the wheel, scikit-learn's checks, the golden record, statistics over many fits.
test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

# Bad inputs, damaged files, kills, threads, other units; the table of docs/reliability.md. Exits with 1 on any fault.
campaign: $(STAMP)
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m campaign --write ../docs/reliability.md

# The site, from nothing: what pages show is run anew. Warnings are errors; nothing is fetched.
docs: $(STAMP)
	rm -rf build/docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --builder html docs build/docs

pictures: $(STAMP)
	$(BIN)/python docs/pictures.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	# Editable finders are invisible to type checkers: check a real install.
	rm -rf build/typed && $(BIN)/python -m pip install --quiet --no-deps --target build/typed .
	MYPYPATH=build/typed $(BIN)/mypy --config-file pyproject.toml -p pdcc

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The measured claims of docs/results.md; human noise needs PDCC_DATA.
bench: bench-speed bench-synthetic bench-bank bench-sbc bench-ssc bench-baselines bench-human bench-default bench-tables

bench-speed: $(STAMP)
	$(BIN)/python benchmarks/speed.py

bench-synthetic: $(STAMP)
	$(BIN)/pdcc simulate synthetic -o results --jobs 2
	cp results/synthetic-noisy.png docs/synthetic.png

bench-bank: $(STAMP)
	$(BIN)/pdcc simulate bank -o results --jobs 2
	$(BIN)/pdcc simulate memberships -o results --jobs 2

bench-sbc: $(STAMP)
	$(BIN)/python benchmarks/sbc.py --jobs 2

bench-ssc: $(STAMP)
	$(BIN)/python benchmarks/ssc.py

bench-human: $(STAMP)
	$(BIN)/pdcc bench people -o results/people --jobs 2
	$(BIN)/pdcc bench people-robust -o results/people-robust --jobs 2
	$(BIN)/pdcc bench human-noise -o results/human-noise --jobs 2
	$(BIN)/pdcc bench machine -o results/machine --jobs 2
	$(BIN)/pdcc bench ablation -o results/ablation --jobs 2
	$(BIN)/pdcc bench volumes -o results/volumes --jobs 2
	$(BIN)/pdcc bench volumes-raw -o results/volumes-raw --jobs 2

# The default on data it was not set on; without PDCC_DATA on four of the nine data sets.
bench-default: $(STAMP)
	$(BIN)/pdcc bench bank -o results/bank --jobs 2

bench-baselines: $(STAMP)
	$(BIN)/python benchmarks/baselines.py
	$(BIN)/pdcc bench quick -o results/quick --jobs 2

# Records into docs/measured, and from there into the documents' tables.
bench-tables: $(STAMP)
	for run in results/*/cells.jsonl; do cp $$run docs/measured/$$(basename $$(dirname $$run)).jsonl; done
	$(BIN)/python benchmarks/tables.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache *.egg-info
