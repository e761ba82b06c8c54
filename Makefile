# `make serve` and `make test` need Debian, Python 3.11 and nothing else; what is there already is used again.
.DEFAULT_GOAL := help
.PHONY: help serve test bench faults docs cassandra zookeeper down clean

BIN := .venv/bin
# `make test TESTS=tests/unit` runs a part; `make faults ROUNDS=100` tries for longer.
TESTS ?=
ROUNDS ?= 10
# Tests wait for clocks and servers as much as they compute: three keep two processors busy, more starve three Cassandra nodes.
WORKERS ?= 3
# Of the tests that take long, and of those that break three Cassandra nodes, so many are drawn for each run; `make faults` has them all.
SHARE ?= 1
# `make cassandra NODES=3` starts three.
NODES ?= 1
JAVA := java=openjdk-17-jdk-headless mvn=maven

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

serve: ## Make the environment, then run the server on 127.0.0.1:5000 with its data in ./queuey-data
	@sh scripts/env.sh arrow
	@echo 'In other terminals begin with:  . .venv/bin/activate'
	@exec $(BIN)/queuey serve

test: ## Everything that must pass: lint, types, and all tests
	@sh scripts/need.sh chromium curl nginx strace $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services fetch
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder --durations 25 $(if $(TESTS),,--share $(SHARE)) $(TESTS)

faults: ## The guarantees under kill -9, full disks, dead nodes, cut networks: the long form
	@sh scripts/need.sh curl nginx strace $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services fetch
	@$(BIN)/python -m pytest $(TESTS) -m "faults or drawn or long" --fault-rounds $(ROUNDS)

bench: ## How fast, as a table of ratios within one run
	@sh scripts/need.sh wrk
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.bench

docs: ## The documentation as HTML in build/html; a warning is an error
	@sh scripts/env.sh dev
	$(BIN)/sphinx-build -W -n -q -b html docs build/html
	@echo "build/html/index.html"

cassandra: ## A real Cassandra on 127.0.0.1:9042 until `make down`; NODES=3 for three
	@sh scripts/need.sh $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services up cassandra --nodes $(NODES)

zookeeper: ## A real ZooKeeper on 127.0.0.1:2181 until `make down`; NODES=3 for three
	@sh scripts/need.sh $(JAVA)
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.support.services up zookeeper --nodes $(NODES)

down: ## Stop both; their data stay in .services
	@$(BIN)/python -m tests.support.services down

clean: ## Remove the environment and everything that was built; data stays
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
