# Every target is one call of the program; what is fresh is decided there. `make help` lists the targets.
PYTHON  ?= python3
IMAGES  ?=
CONFIG  ?=
RUN     ?=
LEARNER ?= oasis
QUERY   ?=
RESULT  ?=
LABEL   ?=
QUICK   ?=
ONLY    ?=
ARGS    ?=

BIN     := .venv/bin
VISTERM := $(BIN)/visterm
ROOMS   := features learners retrieval pipeline
# A run is named by RUN, or else after CONFIG (by the program), or else after the directory IMAGES.
NAME     = $(if $(RUN),--run "$(RUN)",$(if $(CONFIG),,$(if $(IMAGES),--run "$$(basename "$$(realpath "$(IMAGES)")")")))
OPTIONS  = $(NAME) $(if $(CONFIG),--config "$(CONFIG)")
# LEARNER="oasis aroma" names several: trained one after the other, then evaluated in one report.
LEARNERS = $(LEARNER:%=--learner %)
# One question: an image or a label. Unless LEARNER is given, the program chooses the learner.
ASKED    = $(if $(QUERY),"$(QUERY)") $(if $(LABEL),--label "$(LABEL)")
CHOSEN   = $(if $(filter file,$(origin LEARNER)),,$(LEARNERS))

.DEFAULT_GOAL := help
.PHONY: help install demo features train evaluate search annotate explain serve judge add remove compact info test check format types bench webscale reproduce docs wheel clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12
	@echo
	@echo 'Variables: IMAGES=directory  CONFIG=file.yaml  RUN=name (a folder below runs/)  LEARNER=oasis  ARGS="more options"'
	@echo 'LEARNER="oasis aroma" names several, LEARNER=all those that the run has.'

install: $(BIN)/.installed  ## make .venv with everything pinned in constraints.txt

$(BIN)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'visterm needs Python 3.11 or later; name one with: make PYTHON=python3.12 ...' >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install  ## all stages on photos that scikit-image and scikit-learn ship; needs no download
	@$(VISTERM) demo $(ARGS)

features: install  ## IMAGES=dir: pixels to visterm counts
	@$(VISTERM) features $(if $(IMAGES),"$(IMAGES)") $(OPTIONS) $(ARGS)

train: features  ## learn a similarity (LEARNER)
	@$(VISTERM) train $(LEARNERS) $(OPTIONS) $(ARGS)

evaluate: train  ## rank the test images; figures, curves and report.html
	@$(VISTERM) evaluate $(LEARNERS) $(OPTIONS) $(ARGS)

search: install  ## QUERY=image.jpg: the most similar images of the run; LABEL=name: the images that it fits best
	@$(VISTERM) search $(ASKED) $(NAME) $(CHOSEN) $(ARGS)

annotate: install  ## QUERY=image.jpg: labels for it; LABEL=name: labels near it
	@$(VISTERM) annotate $(ASKED) $(NAME) $(CHOSEN) $(ARGS)

explain: install  ## QUERY=image.jpg RESULT=image: why they match (ARGS="--output why.png")
	@$(VISTERM) explain "$(QUERY)" "$(RESULT)" $(NAME) $(CHOSEN) $(ARGS)

serve: install  ## the page and the API on this machine (ARGS="--port 0 --open")
	@$(VISTERM) serve $(NAME) $(ARGS)

judge: install  ## people judge what a learner finds, on a page
	@$(VISTERM) judge $(NAME) $(CHOSEN) $(ARGS)

add: install  ## IMAGES=file or directory: add them to a run (RUN), from anywhere; LABEL=name
	@$(VISTERM) add "$(IMAGES)" $(if $(RUN),--run "$(RUN)") $(if $(LABEL),--label "$(LABEL)") $(ARGS)

remove: install  ## IMAGES=file, directory or id:12, or LABEL=name: take them out of a run (RUN)
	@$(VISTERM) remove $(if $(IMAGES),"$(IMAGES)") $(if $(RUN),--run "$(RUN)") $(if $(LABEL),--label "$(LABEL)") $(ARGS)

compact: install  ## merge small segments of a run, drop dead rows
	@$(VISTERM) compact $(NAME) $(ARGS)

info: install  ## what a run holds, and what is fresh
	@$(VISTERM) info $(NAME) $(ARGS)

test: install  ## the test suite
	$(BIN)/python -m pytest $(ARGS)

check: install types  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types:  # mypy and editors resolve visterm.<room> through these links
	@mkdir -p build/typing/visterm
	@for room in $(ROOMS); do ln -sfn ../../../$$room build/typing/visterm/$$room; done

bench: install  ## speed beside peers; writes benchmarks/results.json
	$(BIN)/python -m benchmarks $(ARGS)

webscale: install  ## learning from millions of images; two hours, or SIZE=small
	$(BIN)/python -m benchmarks scale $(if $(filter small,$(SIZE)),--quick)

reproduce: install  ## the papers' experiments; writes docs/results (QUICK=1: a smaller version; ONLY="name ...")
	$(BIN)/python -m experiments $(if $(QUICK),--quick) $(ONLY) $(ARGS)

docs: install types  ## the documentation site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo build/site/index.html

wheel: install  ## sdist and wheel in build/dist, as an index would take them
	@rm -rf build/dist
	@$(BIN)/python -m build --outdir build/dist . >/dev/null
	$(BIN)/twine check --strict build/dist/*

clean:  ## remove build products, not runs
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
