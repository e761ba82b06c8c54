# `make serve` and `make test` need only Debian and Python 3.11. They use an existing environment again.
.DEFAULT_GOAL := help
.PHONY: help serve test bench faults docs pages dist cassandra zookeeper down clean
# A run of the tests starts Python a thousand times: what it compiled once it need not compile again, whatever the machine says.
test faults: export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
# `make test TESTS=tests/unit` runs a part; `make faults ROUNDS=100` runs longer.
TESTS ?=
ROUNDS ?= 10
# Tests wait for clocks and servers as often as they compute: three processes keep two processors busy, and more starve three Cassandra nodes.
WORKERS ?= 3
# Number of long tests in a run, beside one of those with three nodes of Cassandra; `make faults` runs them all.
SHARE ?= 3
# A run that takes longer is broken off and says what it has found.
LIMIT ?= 60m
# `make cassandra NODES=3` starts three.
NODES ?= 1
JAVA := java=openjdk-17-jdk-headless mvn=maven
NODEJS := node=nodejs

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

serve: ## Make the environment, then run the server on 127.0.0.1:5000 with its data in ./queuey-data
	@sh scripts/env.sh server,arrow
	@echo 'In other terminals begin with:  . .venv/bin/activate'
	@exec $(BIN)/queuey serve

test: ## Run lint, types and all tests
	@sh scripts/need.sh chromium curl nginx promtool=prometheus strace wrk $(NODEJS) $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services fetch
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@sh scripts/beside.sh $(BIN)/mypy timeout --foreground --signal INT --kill-after 1m $(LIMIT) $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder --durations 25 $(if $(TESTS),,--share $(SHARE)) $(TESTS)

faults: ## Try to break the guarantees for many rounds: kill -9, full disks, dead nodes, cut networks
	@sh scripts/need.sh curl fusermount3=fuse3 go=golang nginx rabbitmq-server redis-server strace $(JAVA) $(NODEJS) npm
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services fetch
	@$(BIN)/python -m pytest $(TESTS) -m "faults or drawn or long" --fault-rounds $(ROUNDS)

bench: ## Measure speeds, as a table of ratios within one run
	@sh scripts/need.sh wrk $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.bench

docs: ## Build the documentation as HTML in build/html; a warning is an error
	@sh scripts/env.sh docs
	$(BIN)/sphinx-build -W -n -q -b html docs build/html
	@echo "build/html/index.html"

pages: ## Write anew what the code knows best in docs/: settings, commands, metrics, errors, Python API, diagrams
	@sh scripts/env.sh dev
	@$(BIN)/python -m scripts.pages

dist: ## Make the source archive, the wheel, and the wheel of the client alone in dist/
	@sh scripts/env.sh server,arrow
	@rm -rf dist
	@$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" > /dev/null
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	@$(BIN)/python scripts/client_wheel.py dist > /dev/null
	@ls dist/*

cassandra: ## Start a real Cassandra on 127.0.0.1:9042 until `make down`; NODES=3 for three nodes
	@sh scripts/need.sh $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services up cassandra --nodes $(NODES)

zookeeper: ## Start a real ZooKeeper on 127.0.0.1:2181 until `make down`; NODES=3 for three servers
	@sh scripts/need.sh $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services up zookeeper --nodes $(NODES)

down: ## Stop Cassandra and ZooKeeper; their data stay in .services
	@$(BIN)/python -m tests.support.services down

clean: ## Remove the environment and all build results; data stays
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
