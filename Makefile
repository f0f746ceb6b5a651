# speak: the first sentence, with the light install.  test: everything that must hold, with PyTorch.
PYTHON ?= python3
VENV ?= .venv
TEXT ?= The ship left the harbour at dawn, and nobody on the quay said a word.
REFERENCE ?= examples/reference.flac
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: speak test check format

speak: $(VENV)/light
	$(VENV)/bin/marstts speak "$(TEXT)" --reference $(REFERENCE) --output speech.wav

$(VENV)/light: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable .
	touch $@

$(VENV)/test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet torch==2.13.0
	$(VENV)/bin/python -m pip install --quiet --editable . --group test
	touch $@

test: $(VENV)/test
	$(MAKE) check VENV=$(VENV)

check:
	$(VENV)/bin/ruff format --check src tests
	$(VENV)/bin/ruff check src tests
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python -m pytest

format:
	$(VENV)/bin/ruff format src tests
	$(VENV)/bin/ruff check --fix src tests
