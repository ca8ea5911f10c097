PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/core
DEV := .venv/dev
GROUPED := .venv/grouped

.PHONY: demo test test-plain test-data lint clean bench bench-cores bench-accuracy bench-bandits bench-bandit-defaults bench-off-policy bench-kills bench-event-log bench-tables bench-grouped bench-online bench-scale bench-ray bench-flower bench-never-worse bench-mixed-bandit bench-hostile

demo: $(CORE)  ## set everything up, compare all methods on clients that are alike and different
	$(BIN)/fedres compare --data shops --clients 50 --rounds 100 --report report.html
	@echo
	@echo "fedres is installed in the virtual environment .venv. To go on with a table:"
	@echo "  source .venv/bin/activate"
	@echo "  fedres data ratings --out ratings.csv --new new.csv    # a generated table, or use your own"
	@echo "  fedres fit ratings.csv --client user_id --label rating --categorical item_id --local genres --time timestamp --out model"
	@echo "  fedres evaluate model new.csv"

test: $(DEV)  ## set everything up; lint, types, import directions, tests, doctests
	$(MAKE) lint
	$(BIN)/pytest -n 2

test-plain:  ## install a wheel without extras; the commands of the README, and a model with trees
	rm -rf .venv-plain
	$(PYTHON) -m venv .venv-plain
	.venv-plain/bin/pip install --quiet --disable-pip-version-check . pytest hypothesis
	.venv-plain/bin/pytest tests/test_plain_install.py tests/test_first_commands.py

test-data: $(DEV)  ## the tests that read the paper's data sets (needs FEDRES_DATA)
	@test -n "$$FEDRES_DATA" || { echo "set FEDRES_DATA to a folder with the paper's data sets"; exit 2; }
	$(BIN)/pytest -n 2 -m needs_data tests

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

bench-bandits: $(DEV) $(GROUPED)  ## rewards and speed of bandits beside Vowpal Wabbit (needs FEDRES_DATA); goes on if stopped
	$(BIN)/python benchmarks/bandits.py
	$(BIN)/python benchmarks/bandit_study.py
	$(BIN)/python benchmarks/bandit_tables.py

bench-bandit-defaults: $(DEV)  ## parameters of policies, and late rewards (needs FEDRES_DATA); goes on if stopped
	$(BIN)/python benchmarks/bandit_defaults.py
	$(BIN)/python benchmarks/bandit_delays.py
	$(BIN)/python benchmarks/bandit_tables.py

bench-off-policy: $(DEV)  ## how often intervals of off-policy estimates cover the truth
	$(BIN)/python benchmarks/off_policy.py

bench-kills: $(DEV)  ## 50 SIGKILLs of a process with 1,000 bandit clients
	$(BIN)/python benchmarks/kills.py

bench-event-log: $(DEV)  ## what a reward costs a bandit client, with and without a log
	$(BIN)/python benchmarks/event_log.py

bench-tables: $(DEV)  ## learning from a table beside Vowpal Wabbit; a million clients on disk
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/storage.py

bench-scale: $(DEV)  ## tables larger than memory: seconds, peak memory, one client of ten million
	$(BIN)/python benchmarks/scale.py 1e6 3e6 1e7 3e7
	$(BIN)/python benchmarks/one_client.py

bench-online: $(GROUPED)  ## going on row by row from a fit, beside a fit to all rows
	$(BIN)/python benchmarks/online.py

bench-ray: $(DEV)  ## what a second worker on Ray is worth
	$(BIN)/python benchmarks/ray_workers.py

bench-flower: $(DEV)  ## samples a second through Flower, whose time that takes; a million clients
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/checkpoint.py

bench-never-worse: $(DEV)  ## the mixture beside what it mixes, on the paper's sets (needs FEDRES_DATA)
	$(BIN)/python benchmarks/never_worse.py

bench-mixed-bandit: $(DEV)  ## what bandit clients earn that mix, beside each of their experts
	$(BIN)/python benchmarks/mixed_bandit.py

bench-hostile: $(DEV)  ## hostile clients on Flower: what they do to the others, and what the jury costs
	$(BIN)/python benchmarks/hostile.py

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
	rm -rf .venv .venv-plain report.html
