PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test bench lint clean

demo: $(INSTALLED)  ## set everything up, compare the three methods on built-in data
	$(BIN)/fedres compare --report report.html

test: $(INSTALLED)  ## set everything up; lint, types, import directions, tests, doctests
	$(MAKE) lint
	$(BIN)/pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)  ## speed, as ratios to peers run in the same process
	$(BIN)/python benchmarks/speed.py

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv report.html
