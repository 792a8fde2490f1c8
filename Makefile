# `make demo` shows what hpfem does, `make test` runs what CI runs, and
# `make test-all` everything. All need Python >= 3.11 and nothing else;
# the README says how much they download.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    := demo-output
JOBS   ?= $(shell $(PYTHON) -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))")

.PHONY: demo test test-all lint types docs package tutorial clean

# One thread, so that throughput is that of a core.
demo: export OMP_NUM_THREADS = 1
demo: $(VENV)/installed
	$(BIN)/python examples/demo.py --output $(OUT)

# One thread per process: the tests run in JOBS processes. They start many more, which read bytecode instead of making it
# again, also where the environment says that Python writes none.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

# Types are checked beside the tests.
test: $(VENV)/installed-test lint
	$(BIN)/python -m tests.type_check & types=$$!; \
	  $(PYTEST) -n $(JOBS) --durations=20; tests=$$?; wait $$types && exit $$tests

# With the tests marked long, and all cases of those of which `make test` runs some (tests/covering.py, tests/long.txt).
test-all: $(VENV)/installed-test lint types
	$(PYTEST) -n $(JOBS) --durations=20 -m ""

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-test
	$(BIN)/python -m tests.type_check

# The site, in docs/build/html: needs no network once the extra is installed.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/build/html
	@echo "$(CURDIR)/docs/build/html/index.html"

# The wheel: what it holds, and the tests in a fresh environment, outside the checkout; or the pages that newcomers follow.
package: export OMP_NUM_THREADS = 1
package: export OPENBLAS_NUM_THREADS = 1
package: $(VENV)/installed-test
	$(PYTEST) -m "" tests/test_package.py
	$(PYTHON) tests/installed.py tests

tutorial: export OMP_NUM_THREADS = 1
tutorial:
	$(PYTHON) tests/installed.py tutorial

clean:
	rm -rf $(VENV) $(OUT) build dist docs/build docs/api

$(VENV)/created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "hpfem needs Python >= 3.11; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml setup.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-test: $(VENV)/created pyproject.toml setup.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,docs]"
	touch $@ $(VENV)/installed $(VENV)/installed-docs

$(VENV)/installed-docs: $(VENV)/created pyproject.toml setup.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@ $(VENV)/installed
