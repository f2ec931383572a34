# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
# Machines that need another build of torch name it and its source here, for example
#   make demo TORCH=torch==2.11.0 TORCH_SOURCE="--index-url URL"
TORCH_SOURCE ?=

BIN := $(VENV)/bin
RUN := runs/demo

.PHONY: install demo test test-long test-gpu lint types check wheel docs-site release bench docs clean

install: $(VENV)/.runtime
	@echo "try: $(BIN)/anytime sample mnist --within 20ms"

demo: $(VENV)/.runtime
	$(BIN)/anytime train digits --out $(RUN)
	for part in 0.25 0.5 0.75 1.0; do \
	  $(BIN)/anytime sample $(RUN) --fraction $$part --out $(RUN)/samples/fraction-$$part.png || exit; done
	@echo "look at: $(RUN)/samples/by-length.png  $(RUN)/samples/refining.gif  $(RUN)/report.html"

# Tests that measure real time come last and one by one: beside others they would measure those too.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not (slow or gpu or timing)"
	$(BIN)/python -m pytest -m "timing and not (slow or gpu)"

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow --record=tests/records/long.json

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu --record=tests/records/gpu.json

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: lint types test

# Builds wheel and sdist into dist/, and uses the wheel in a fresh environment outside the clone.
wheel: $(VENV)/.dev
	$(BIN)/python scripts/check_wheel.py --keep dist

# The documentation site in build/site: open build/site/index.html, or serve the folder.
docs-site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Everything before a release, in this order. Publishing is left to the maintainer: see CONTRIBUTING.md.
release: lint types test wheel docs-site

bench: $(VENV)/.dev
	$(BIN)/anytime bench sampling

docs: $(VENV)/.dev
	$(BIN)/python scripts/build_docs.py

# torch first and alone: left to a range, pip may bring several gigabytes of CUDA to a machine without a GPU.
$(VENV)/.torch:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anytime needs Python 3.11 or newer: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH_SOURCE) "$(TORCH)"
	$(BIN)/python scripts/check_torch.py
	touch $@

$(VENV)/.runtime: $(VENV)/.torch pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plots,server,compression]"
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(RUN)
