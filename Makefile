PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/core
DEV := .venv/dev
GROUPED := .venv/grouped

.PHONY: demo test lint clean bench bench-cores bench-accuracy bench-bandits bench-tables bench-flower bench-grouped

demo: $(CORE)  ## set everything up, compare the three methods on built-in data
	$(BIN)/fedres compare --report report.html

test: $(DEV)  ## set everything up; lint, types, import directions, tests, doctests
	$(MAKE) lint
	$(BIN)/pytest -n 2

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench-cores: $(DEV)  ## what a second core is worth to a sweep (needs FEDRES_DATA)
	$(BIN)/python benchmarks/cores.py

bench-accuracy: $(DEV)  ## test accuracy beside logistic regression (needs FEDRES_DATA)
	$(BIN)/python benchmarks/accuracy.py

bench: $(DEV)  ## speed, as ratios to peers run in the same process
	$(BIN)/python benchmarks/speed.py

bench-bandits: $(DEV)  ## rewards and speed of bandits beside Vowpal Wabbit (needs FEDRES_DATA)
	$(BIN)/python benchmarks/bandits.py

bench-tables: $(DEV)  ## learning from a table beside Vowpal Wabbit; a million clients on disk
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/storage.py

bench-flower: $(DEV)  ## samples a second through Flower, and whose time that takes
	$(BIN)/python benchmarks/flower.py

bench-grouped: $(GROUPED)  ## tables with clients beside mixed models and trees (needs FEDRES_DATA); goes on if stopped
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/grouped.py

$(CORE): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(DEV): $(CORE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(GROUPED): $(CORE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[grouped]'
	touch $@

clean:
	rm -rf .venv report.html
