# `make demo` shows what hpfem does, `make test` runs everything that CI runs. Both need Python >= 3.11 and nothing else;
# the README says how much they download.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    := demo-output
JOBS   ?= $(shell $(PYTHON) -c "import os; print(min(4, 1 + (os.cpu_count() or 1)))")

.PHONY: demo test lint types docs package tutorial clean

# One thread, so that throughput is that of a core.
demo: export OMP_NUM_THREADS = 1
demo: $(VENV)/installed
	$(BIN)/python examples/demo.py --output $(OUT)

# One thread per process: the tests run in JOBS processes. They start many more, which read bytecode instead of making it
# again, also where the environment says that Python writes none.
test: $(VENV)/installed-test lint types
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-test
	$(BIN)/python tests/type_check.py

# The site, in docs/build/html: needs no network once the extra is installed.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/build/html
	@echo "$(CURDIR)/docs/build/html/index.html"

# The wheel in a fresh environment, outside the checkout: all tests, or the pages that newcomers follow.
package: export OMP_NUM_THREADS = 1
package: export OPENBLAS_NUM_THREADS = 1
package:
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
