# `make serve` and `make test` need Debian, Python 3.11 and nothing else; what is there already is used again.
.DEFAULT_GOAL := help
.PHONY: help serve test bench faults docs clean

BIN := .venv/bin
# `make test TESTS=tests/unit` runs a part; `make faults ROUNDS=100` tries for longer.
TESTS ?=
ROUNDS ?= 10

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

serve: ## Make the environment, then run the server on 127.0.0.1:5000 with its data in ./queuey-data
	@sh scripts/env.sh arrow
	@echo 'In other terminals begin with:  . .venv/bin/activate'
	@exec $(BIN)/queuey serve

test: ## Everything that must pass: lint, types, and all tests
	@sh scripts/need.sh curl nginx strace
	@sh scripts/env.sh dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@$(BIN)/python -m pytest $(TESTS)

faults: ## The guarantees under kill -9, full disks, stopped processes: the long form
	@sh scripts/need.sh curl nginx strace
	@sh scripts/env.sh dev
	@$(BIN)/python -m pytest $(or $(TESTS),tests/faults) --fault-rounds $(ROUNDS)

bench: ## How fast, as a table of ratios within one run
	@sh scripts/need.sh wrk
	@sh scripts/env.sh dev
	@$(BIN)/python -m tests.bench

docs: ## The documentation as HTML in build/html; a warning is an error
	@sh scripts/env.sh dev
	$(BIN)/sphinx-build -W -n -q -b html docs build/html
	@echo "build/html/index.html"

clean: ## Remove the environment and everything that was built; data stays
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
