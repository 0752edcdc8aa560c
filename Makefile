# Every target makes what it needs: a virtual environment from the lock file, Kafka's jars on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml requirements.lock | cksum | cut -d' ' -f1)

.PHONY: install demo demo-kafka test check format lock bench bench-arl bench-dependence bench-explain bench-steps bench-reference bench-scores bench-hidden bench-footprint bench-speed-ranks bench-detection bench-throughput bench-compare bench-keys bench-restore bench-cme bench-intervals reproduce-000 reproduce-001 reproduce-002 reproduce-003 reproduce-004 job-kafka chaos-sim chaos chaos-bounce clean

install: $(STAMP)

$(STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/kstream-worker compile
	rm -f $(VENV)/.installed-*
	touch $@

demo: install
	$(BIN)/kstream-worker demo --output out/demo

demo-kafka: install
	$(BIN)/kstream-worker demo --kafka --output out/demo-kafka

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: install
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock

bench: bench-arl bench-detection bench-throughput

bench-arl: install
	$(BIN)/python -m benchmarks.arl

# False alarms and delays on serially dependent streams; ten minutes.
bench-dependence: install
	$(BIN)/python -m benchmarks.arl_dependence

# Intervals, features and kinds that alarms name.
bench-explain: install
	$(BIN)/python -m benchmarks.explain

# Alarms and incidents of one change, and whether its end is found.
bench-steps: install
	$(BIN)/python -m benchmarks.steps

bench-reference: install
	$(BIN)/python -m benchmarks.arl_reference

# Scores of models that learn, bets both ways and upwards alone.
bench-scores: install
	$(BIN)/python -m benchmarks.arl_scores

# Labelled series of others, from KSTREAM_DATA or ../shared/data. Peers, where wanted: .venv/bin/pip install river ruptures changepoynt
bench-detection: install
	$(BIN)/python -m benchmarks.detection

# Or a part of it: CME="changes --quick".
bench-cme: install
	$(BIN)/python -m benchmarks.cme $(CME)

# Prediction intervals of cme, where nothing changes and where the law does.
bench-intervals: install
	$(BIN)/python -m benchmarks.intervals

bench-hidden: install
	$(BIN)/python -m benchmarks.hidden

bench-footprint: install
	$(BIN)/python -m benchmarks.footprint

bench-speed-ranks: install
	$(BIN)/python -m benchmarks.speed_ranks

bench-throughput: install
	$(BIN)/python -m benchmarks.throughput

# Beside another commit: make bench-compare COMMIT=v0.1.0
bench-compare: install
	$(BIN)/python -m benchmarks.compare --commit $(COMMIT)

bench-keys: install
	$(BIN)/python -m benchmarks.keys

bench-restore: install
	$(BIN)/python -m benchmarks.restore

# The papers' experiments: their figures beside ours, and a plot in out/.
reproduce-000: install
	$(BIN)/python -m benchmarks.reproduce_000

reproduce-001: install
	$(BIN)/python -m benchmarks.reproduce_001

reproduce-002: install
	$(BIN)/python -m benchmarks.reproduce_002

reproduce-003: install
	$(BIN)/python -m benchmarks.reproduce_003

reproduce-004: install
	$(BIN)/python -m benchmarks.reproduce_004

# Simulations: any number (SEEDS=100000), or one with its trace (SEED=17).
chaos-sim: install
	$(BIN)/python tests/simulation/chaos_sim.py --seeds $(or $(SEEDS),10000) $(if $(SEED),--seed $(SEED))

job-kafka: install
	$(BIN)/python -m benchmarks.main_job

# Both clients, 200 faults each, and all scenarios. CHAOS="run --client confluent --faults 20 --seed 7" for a part of it.
CHAOS ?= all
chaos: install
	$(BIN)/python -m benchmarks.chaos $(CHAOS)

chaos-bounce: install
	$(BIN)/python -m benchmarks.chaos bounce

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
