# Short names for what CONTRIBUTING.md describes. Needs the environment of the README's test command in .venv.
PYTHON ?= .venv/bin/python

.PHONY: check test bench docs format
check:            ## format, lint, types, import contracts, current docs, fast tests
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q -m "not model and not slow"
test:             ## everything, with the real small model
	$(PYTHON) -m pytest
bench:            ## measurements beside llama.cpp's own tools (LLAMA_CPP_BIN names their folder)
	$(PYTHON) -m benchmarks
docs:             ## the generated command reference
	$(PYTHON) docs/generate_cli.py
format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
