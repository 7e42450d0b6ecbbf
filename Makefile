# Every target is one call of the program, which decides what is up to date. `make help` lists the targets.
PYTHON  ?= python3
IMAGES  ?=
CONFIG  ?=
RUN     ?=
LEARNER ?= oasis
QUERY   ?=
RESULT  ?=
LABEL   ?=
TO      ?= npz
QUICK   ?=
DEEP    ?=
ONLY    ?=
SLOW    ?=
WORKERS ?= logical
COVERAGE ?=
ARGS    ?=

BIN     := .venv/bin
VISTERM := $(BIN)/visterm
ROOMS   := features learners retrieval pipeline teaching service plugins
# Name of the run: RUN, or else derived from CONFIG (by the program), or else from the directory IMAGES.
NAME     = $(if $(RUN),--run "$(RUN)",$(if $(CONFIG),,$(if $(IMAGES),--run "$$(basename "$$(realpath "$(IMAGES)")")")))
OPTIONS  = $(NAME) $(if $(CONFIG),--config "$(CONFIG)")
# LEARNER="oasis aroma" names several: trained one after the other, evaluated in one report.
LEARNERS = $(LEARNER:%=--learner %)
# The query: an image or a label. Without LEARNER, the program chooses the learner.
ASKED    = $(if $(QUERY),"$(QUERY)") $(if $(LABEL),--label "$(LABEL)")
CHOSEN   = $(if $(filter file,$(origin LEARNER)),,$(LEARNERS))

# npm brings the tools that check the page's code; everything else works without it.
NPM := $(shell command -v npm 2>/dev/null)
API := build/typing/openapi.d.ts

# Without cached bytecode each of the hundreds of processes of the tests would compile visterm again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev demo try features train tune evaluate search annotate explain export serve judge add remove compact repair info test coverage chaos check format types screenshots bench webscale reproduce docs wheel clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12
	@echo
	@echo 'Variables: IMAGES=directory  CONFIG=file.yaml  RUN=name (a folder below runs/)  LEARNER=oasis  ARGS="more options"'
	@echo 'LEARNER="oasis aroma" names several, LEARNER=all selects every trained one.'

install: $(BIN)/.installed  ## create .venv with what the commands below need, in the versions of constraints.txt

dev: $(BIN)/.dev  ## add the packages of tests, checks and documentation, and of every extra

$(BIN)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'visterm needs Python 3.11 or later; name one with: make PYTHON=python3.12 ...' >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[serve,deep,tune]'
	@echo "compiling the kernels, half a minute ..."
	@$(BIN)/python -m visterm.plugins.compiling.warm || echo "not all: the others are compiled when they are first used" >&2
	@touch $@

$(BIN)/.dev: $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install  ## run all stages on photos that scikit-image and scikit-learn ship; no download
	@$(VISTERM) demo $(ARGS)

try: install  ## IMAGES=dir: which vectors and which learner suit these photos, in 90 seconds
	@$(VISTERM) try "$(IMAGES)" $(if $(CONFIG),--config "$(CONFIG)") $(ARGS)

features: install  ## IMAGES=dir: turn images into visterm counts; DEEP=1: into vectors of a neural network
	@$(VISTERM) features $(if $(IMAGES),"$(IMAGES)") $(if $(DEEP),--deep) $(OPTIONS) $(ARGS)

train: features  ## learn a similarity (LEARNER)
	@$(VISTERM) train $(LEARNERS) $(OPTIONS) $(ARGS)

tune: features  ## choose the settings of a learner (LEARNER) on training images (ARGS="--budget 5m --apply")
	@$(VISTERM) tune $(LEARNERS) $(OPTIONS) $(ARGS)

evaluate: train  ## rank the test images; write figures, curves and report.html
	@$(VISTERM) evaluate $(LEARNERS) $(OPTIONS) $(ARGS)

search: install  ## QUERY=image.jpg: the most similar images of the run; LABEL=name: the images that fit it best
	@$(VISTERM) search $(ASKED) $(NAME) $(CHOSEN) $(ARGS)

annotate: install  ## QUERY=image.jpg: labels for the image; LABEL=name: similar labels
	@$(VISTERM) annotate $(ASKED) $(NAME) $(CHOSEN) $(ARGS)

explain: install  ## QUERY=image.jpg RESULT=image: show why they match (ARGS="--output why.png")
	@$(VISTERM) explain "$(QUERY)" "$(RESULT)" $(NAME) $(CHOSEN) $(ARGS)

export: install  ## TO="onnx faiss ...": write the similarity and the gallery for other programs (npz onnx parquet faiss)
	@$(VISTERM) export --to "$(TO)" $(NAME) $(CHOSEN) $(ARGS)

serve: install  ## serve the search page and the API on this machine (ARGS="--port 0 --open")
	@$(VISTERM) serve $(NAME) $(ARGS)

judge: install  ## rate the results of a learner, on a page: the human evaluation
	@$(VISTERM) judge $(NAME) $(CHOSEN) $(ARGS)

add: install  ## IMAGES=file or directory, from anywhere: add them to a run (RUN); LABEL=name
	@$(VISTERM) add "$(IMAGES)" $(if $(RUN),--run "$(RUN)") $(if $(LABEL),--label "$(LABEL)") $(ARGS)

remove: install  ## IMAGES=file, directory or id:12, or LABEL=name: remove them from a run (RUN)
	@$(VISTERM) remove $(if $(IMAGES),"$(IMAGES)") $(if $(RUN),--run "$(RUN)") $(if $(LABEL),--label "$(LABEL)") $(ARGS)

compact: install  ## merge small segments of a run, drop deleted rows
	@$(VISTERM) compact $(NAME) $(ARGS)

repair: install  ## check every file of a run, rebuild what is damaged
	@$(VISTERM) repair $(if $(IMAGES),"$(IMAGES)") $(NAME) $(ARGS)

info: install  ## describe a run: contents, and what is up to date
	@$(VISTERM) info $(NAME) $(ARGS)

test: dev  ## run the test suite; SLOW=1: campaigns of minutes, too; WORKERS=3: tests at a time
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(if $(SLOW),--slow) $(ARGS)

# Two parts, as the fast suite is to cover nearly what all tests do. The figures come also where tests fail (pytest's 1),
# but not where pytest was interrupted or misused; 5: ARGS names no test of this part.
coverage: dev  ## branch coverage of the fast suite, and of all tests; 15 minutes
	@rm -rf build/coverage && mkdir -p build/coverage
	@failed=0; for part in "not slow" slow; do \
	  $(BIN)/coverage run --data-file="build/coverage/$$part" -m pytest -n logical --dist worksteal -m "$$part" $(ARGS); \
	  case $$? in 0|5) ;; 1) failed=1;; *) exit 2;; esac; \
	  $(BIN)/coverage combine --quiet --data-file="build/coverage/$$part" "build/coverage/$$part".* || exit; \
	done; \
	$(BIN)/coverage combine --quiet --keep --data-file=build/coverage/all "build/coverage/not slow" build/coverage/slow; \
	echo "fast: $$($(BIN)/coverage report --data-file="build/coverage/not slow") %"; \
	echo "all:  $$($(BIN)/coverage report --data-file=build/coverage/all) %"; \
	exit $$failed

chaos: dev  ## damage, kill and starve runs, thousands of times; writes docs/reliability.md (QUICK=1: fixed seeds, 2 minutes)
	@$(BIN)/python tests/chaos $(if $(QUICK),--quick,--write docs/reliability.md) $(ARGS)

check: dev types  ## check lint, format and types; COVERAGE=1: run all tests and print their coverage, too
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if $(if $(NPM),$(MAKE) --silent node_modules/.installed,false); then $(MAKE) --silent check-page; \
	else echo "npm is missing, or cannot install: the page's code was not checked"; fi
	$(if $(COVERAGE),@$(MAKE) --silent coverage)

check-page: $(API)
	npm run --silent check

format: dev $(if $(NPM),node_modules/.installed)  ## format the code and apply safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(NPM),npm run --silent format)

node_modules/.installed: package.json package-lock.json
	npm ci --loglevel error --no-audit --no-fund --fetch-retries 1 --fetch-timeout 60000 >/dev/null
	@touch $@

# Types of what the service returns, for the page's code.
$(API): $(BIN)/.dev node_modules/.installed $(wildcard service/*.py service/subjects/*.py) tests/describe_api.py
	@mkdir -p $(@D)
	@$(BIN)/python tests/describe_api.py >$(@D)/openapi.json
	@npm run --silent types

types:  # mypy and editors resolve visterm.<room> through these links
	@mkdir -p build/typing/visterm
	@for room in $(ROOMS); do ln -sfn ../../../$$room build/typing/visterm/$$room; done
	@ln -sf ../../../package/__init__.pyi ../../../package/extras.py ../../../package/sparse.py ../../../package/compiled.py ../../../package/lazy.py ../../../package/files.py build/typing/visterm/

screenshots: dev  ## take the pictures of the page in docs/screens, from a run with an evaluation (RUN)
	@$(BIN)/python tests/screenshots.py "runs/$(RUN)"

bench: dev  ## measure speed beside peers; write benchmarks/results.json
	$(BIN)/python -m benchmarks $(ARGS)

webscale: dev  ## train on millions of synthetic images; 45 minutes, or SIZE=small
	$(BIN)/python -m benchmarks scale $(if $(filter small,$(SIZE)),--quick)

reproduce: dev  ## run the papers' experiments; write docs/results (QUICK=1: a smaller version; ONLY="name ...")
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(ONLY) $(ARGS)

docs: dev types  ## build the documentation site, build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo build/site/index.html

# Both from the checkout: the sources of an sdist have no node_modules, with which the page is bundled (setup.py).
wheel: dev  ## build sdist and wheel in build/dist, check them with twine
	@rm -rf build/dist
	@$(if $(NPM),$(MAKE) --silent node_modules/.installed,false) || echo "npm is missing, or cannot install: the wheel's page is not bundled"
	@$(BIN)/python -m build --sdist --wheel --outdir build/dist . >/dev/null
	$(BIN)/twine check --strict build/dist/*

clean:  ## remove build products, keep runs
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
