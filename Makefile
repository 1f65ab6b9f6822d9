# `make test` and `make demo` need nothing but Python 3.10+ and make: they set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# Compiled modules are kept even where the environment says otherwise: nothing is compiled at installation, so every
# process that a test starts would compile torch anew, for longer than all else that it does.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help test coverage quick lint hooks demo docs docs-serve benchmark fuzz clean

help:
	@echo "make test       lint, type-check and test (sets up $(VENV) first)"
	@echo "make coverage   the tests with coverage of lines and branches; fails below the floor"
	@echo "make quick      lint, then the contract of the transforms, in about a minute;"
	@echo "                make quick T=low_rank: of one of them, its compilation included"
	@echo "make hooks      run the checks of make lint before every commit"
	@echo "make demo       train a wide network, compress it to a tenth, recover, export; a table and a page"
	@echo "make docs       build the site into site/; make docs-serve shows it while you write"
	@echo "make benchmark  measure choices, input, memory, recipes, sweeps; write benchmarks/results"
	@echo "make fuzz       damaged files of every kind, 400 each; write benchmarks/results/fuzz.json"
	@echo "make clean      remove $(VENV) and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "understudy needs Python 3.10 or newer; try: make PYTHON=python3.11 test" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and by its exact version, so that no other package pulls another build of it.
$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) torch==$$(sed -n 's/^torch==//p' constraints.txt) numpy
	$(PIP) -e .
	@touch $@

$(VENV)/.demo: $(VENV)/.run
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e '.[dev]'
	@touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One thread a process: two test processes on two cores, and the same results on every machine.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -q
test: lint
	$(PYTEST)

# On its own: a tracer makes the tests take half as long again.
coverage: $(VENV)/.dev
	$(PYTEST) --cov --cov-report=term

# What a change of a transform needs. QUICK names other tests, T picks by name; compilers are slow, so they wait for T.
QUICK ?= tests/transforms
T ?= not compilers
quick: lint
	$(PYTEST) -x -m "not slow" -k "$(T)" $(QUICK)

hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

demo: $(VENV)/.demo
	@$(BIN)/understudy demo --out runs/demo

# A warning is an error. What is switched off is a notice of mkdocs-material about another program.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "site/index.html"

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# benchmarks/compress.py, curve.py, trained.py and study.py need trained weights and CIFAR-10: run them by hand.
benchmark: $(VENV)/.dev
	$(BIN)/python benchmarks/pace.py --write
	$(BIN)/python benchmarks/input_pipeline.py --write
	$(BIN)/python benchmarks/published.py --write
	$(BIN)/python benchmarks/memory.py --write
	$(BIN)/python benchmarks/recipes.py --write
	$(BIN)/python benchmarks/sweep_resume.py --write
	$(BIN)/python benchmarks/demo.py --write
	$(BIN)/python benchmarks/report.py --write

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzzing.py --count 400 --seed 53 --write

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* dist site
