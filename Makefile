# make demo and make test set everything up themselves; ARGS go to the command (ARGS=--keep).
.PHONY: experiments demo test test-frameworks check bench lock dashboards rules
BIN := .venv/bin
GLOO := test_the_culprit_is_named_with_its_node_and_the_evidence[torch]
AGAIN := --last-failed --last-failed-no-failures none
export PATH := $(CURDIR)/.cache/kubernetes:$(PATH)
LOCK := --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-header

demo:
	@deploy/setup.sh demo
	@$(BIN)/stagewatch demo $(ARGS)

test:
	@deploy/setup.sh tools
	@deploy/setup.sh venv
	@deploy/setup.sh kubernetes
	$(BIN)/pytest -n 6 --dist loadgroup --durations 20 $(ARGS) || { \
	    echo "$@: again, one at a time, what failed beside others on a busy machine"; \
	    $(BIN)/pytest -n 1 --dist loadgroup $(AGAIN) $(ARGS); }

test-frameworks: # the hooks in the real TRL, verl, AReaL, miles and Ray, and PyTorch's collectives
	@deploy/setup.sh tools
	@deploy/setup.sh frameworks
	export STAGEWATCH_FRAMEWORKS=$(CURDIR)/.venv-frameworks/frameworks; \
	set -- .venv-frameworks/bin/pytest $(ARGS) tests/client tests/checkpoint tests/qualify \
	    tests/incidents/test_debug_server.py "tests/lab/test_culprits.py::$(GLOO)"; \
	"$$@" || { echo "$@: again what failed"; "$$@" $(AGAIN); }

.PHONY: release test-release try-release
release: # all that is published, into dist/
	@deploy/setup.sh release
	@deploy/release/build.sh

test-release: release # the packages in a bare Debian, the image; two builds are equal
	@deploy/setup.sh tools
	@deploy/setup.sh venv
	@deploy/setup.sh kubernetes
	STAGEWATCH_DIST=$(CURDIR)/dist $(BIN)/pytest $(ARGS) tests/deploy/test_release.py \
	    tests/deploy/test_image.py tests/deploy/test_project_pages.py tests/deploy/test_systemd.py

try-release: # the deb of dist/ in a bare Debian that systemd boots: agent and judge run, are scraped
	STAGEWATCH_DIST=$(CURDIR)/dist $(BIN)/pytest tests/deploy/test_release.py \
	    -k "TestDeb and (version_before or scraped or its_user)"

.PHONY: docs
docs: # the documentation site, into site/; strict
	@deploy/setup.sh docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet $(ARGS)
	@echo "docs: open site/index.html"

check:
	@deploy/setup.sh tools
	@deploy/setup.sh venv
	$(BIN)/ruff format --check exporters tests docs dashboards alerts
	$(BIN)/ruff check exporters tests docs dashboards alerts
	$(BIN)/mypy
	@$(MAKE) --no-print-directory rules
	promtool check rules --lint=all --lint-fatal alerts/*.rules.yaml
	promtool test rules alerts/tests/*.test.yaml
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m stagewatch.dashboards.generate --check

dashboards: # after a change of a board or a metric
	$(BIN)/python docs/generate.py
	$(BIN)/python -m stagewatch.dashboards.generate

rules: # what is generated and not in git: for dcgm-exporter, and for Kubernetes
	PYTHONPATH=exporters python3 alerts/dcgm.rules.py
	PYTHONPATH=exporters python3 deploy/kubernetes/generate.py

.PHONY: plugin
plugin: # what NCCL loads, and the wheel stagewatch-nccl around it, into dist/
	@deploy/setup.sh venv
	cd exporters/stagewatch_nccl && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/dist

bench:
	@deploy/setup.sh venv
	$(BIN)/python -m tests.bench $(ARGS)

experiments: # every scenario, with a report of each; writes docs/experiments.md
	@deploy/setup.sh tools
	@deploy/setup.sh venv
	$(BIN)/python -m tests.experiments $(ARGS)

lock: # after a change of dependencies
	$(BIN)/pip --quiet install uv
	$(BIN)/uv pip compile $(LOCK) --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCK) --extra node --extra slurm --extra web-config --extra demo --extra evidence \
	    --output-file deploy/requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCK) --group release --output-file deploy/release/requirements.lock
	$(BIN)/uv pip compile $(LOCK) --group docs --output-file docs/requirements.lock
