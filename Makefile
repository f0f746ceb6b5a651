# speak: the first sentence, with the light install.  test: all checks, with PyTorch.
# check: the same in an existing environment.  check-fast: without slow tests and types.
# end-to-end: whole recipes on miniatures, commands that are killed, servers, pages in a browser; .ci/run and GitHub run them after
# the tests.
# perturbed: the tests that speak, on ten perturbed copies of the packaged model: takes as on other processors.
# WORKERS: how pytest spreads the tests over processes, one of one thread for each core; empty for a single process.
# dist: wheel and sdist in dist/, checked and spoken with.  site: the documents as a static site in site/, with the page that
# speaks in the browser in site/tab/, for which npm copies two packages to build/npm.
# lock: write the versions of the environment into constraints.txt, which `test` and the Dockerfile install.
PYTHON ?= python3
VENV ?= .venv
TEXT ?= Good morning. The rain has stopped, and we can go outside.
REFERENCE ?= examples/reference.flac
# LIMIT: a test that takes longer hangs, and its process is ended with a traceback.
LIMIT ?= --timeout 300 --timeout-method thread
SOURCES = src tests listening_test tools recipes docs
WORKERS ?= --numprocesses auto --maxprocesses 8 --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYTHONDONTWRITEBYTECODE =  # the tests start many processes, which would compile the package again and again

.PHONY: figures samples speak test check check-fast tests end-to-end perturbed lint types dist npm site format lock

speak: $(VENV)/light
	$(VENV)/bin/marstts speak "$(TEXT)" --reference $(REFERENCE) --output speech.wav

# uv installs faster; without it, pip leaves the bytecode of modules that nothing imports uncompiled.
$(VENV)/light: pyproject.toml
	if command -v uv > /dev/null; then \
		uv venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV) && \
		uv pip install --quiet --python $(VENV)/bin/python --editable .; \
	else \
		$(PYTHON) -m venv $(VENV) && $(VENV)/bin/python -m pip install --quiet --no-compile --editable .; \
	fi
	touch $@

# Modules are compiled where they are imported: pip would compile all of PyTorch first.
$(VENV)/test: pyproject.toml listening_test/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet --no-compile torch==2.13.0 --constraint constraints.txt
	$(VENV)/bin/python -m pip install --quiet --no-compile --editable . --editable listening_test --group test --constraint constraints.txt
	touch $@

$(VENV)/release: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet --group release
	touch $@

test: $(VENV)/test
	$(MAKE) check VENV=$(VENV)

# mypy works for half a minute on one core: beside the tests, it costs half of that.
check: lint
	$(MAKE) --jobs 2 types tests VENV=$(VENV)

tests:
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(WORKERS) $(LIMIT) -m "not end_to_end"

check-fast: lint
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(WORKERS) $(LIMIT) -m "not slow"

end-to-end:
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(WORKERS) $(LIMIT) -m end_to_end

perturbed:
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(WORKERS) $(LIMIT) -m speaks --perturb 10

lint:
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/lint-imports

types:
	$(VENV)/bin/mypy

# figures: docs/results and the tables of the pages, for the weights that ship (tools/figures.py says what it needs).
#   make figures PEOPLE=FOLDER WHISPER=FOLDER     recordings of test people; a Whisper base in CTranslate2's format
figures:
	$(VENV)/bin/python tools/figures.py measure --people "$(PEOPLE)" --whisper "$(WHISPER)" $(FIGURES)

# samples: docs/samples, takes and pages, of the model that ships, or of the bundle in BUNDLE.
samples:
	$(VENV)/bin/python tools/samples_page.py speak --model "$(or $(BUNDLE),mini)"

dist: $(VENV)/release
	rm -rf dist
	$(VENV)/bin/python -m build --outdir dist .
	$(VENV)/bin/python -m twine check --strict dist/*
	$(VENV)/bin/python tests/release/check_contents.py dist
	$(VENV)/bin/python tests/release/speak_from_wheel.py dist

$(VENV)/docs: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(VENV)/bin/python -m pip install --quiet --group docs
	touch $@

# The versions are those of src/marstts/web/package.json; no script of a package runs.
npm: build/npm/installed

build/npm/installed: src/marstts/web/package.json
	mkdir -p build/npm
	cp src/marstts/web/package.json build/npm/
	npm install --prefix build/npm --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel error
	touch $@

site: $(VENV)/docs $(VENV)/light
	$(VENV)/bin/python -m mkdocs build --quiet --strict
	if $(MAKE) npm; then $(VENV)/bin/marstts web --output site/tab; \
	else echo "the page that speaks in the browser is left out of site/tab: npm could not install its packages"; fi

lock:
	$(VENV)/bin/python -m pip freeze --exclude-editable | grep -Ev '^(torch|triton|nvidia-|pip)' > constraints.txt

format:
	$(VENV)/bin/ruff format $(SOURCES)
	$(VENV)/bin/ruff check --fix $(SOURCES)
