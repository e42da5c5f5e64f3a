# Needs Go and make; what needs more says so. "make" lists the targets.

SHELL = /bin/sh
GO ?= go
FUZZTIME ?= 30s

# Without the folder of the checkout in what is compiled, a second clone finds all of it in the cache, and
# Kubernetes, which is built so, shares what it has in common with the tests.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

WORK = GOWORK='$(CURDIR)/go.work'
ALONE = GOWORK=off
# The modules of go.work beside the root. While one has no package yet, it is
# passed over.
NESTED = cmd cloud/aws statesync/sqlstore reconcile/controllerruntime reconcile/operatormetrics reconcile/tracing reconcile/simtest/upstream examples
# The race detector needs a C compiler; without one the tests run without it.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
# A go that is too old, and may not fetch a newer one, says so, but not what to do.
CHECK = $(GO) env GOVERSION >/dev/null 2>&1 || { echo "Go 1.26 or newer is needed, here is $$(cd / && GOTOOLCHAIN=local $(GO) env GOVERSION 2>/dev/null || echo none): https://go.dev/dl" >&2; exit 2; }
# The parent of the tests is make: they end with it.
TESTRUN = $(CHECK); $(WORK) $(GO) build -o bin/testrun ./internal/build/testrun && exec env $(WORK) bin/testrun

.DEFAULT_GOAL = help
.PHONY: help kube helm versitygw test test-all test-long test-regions test-clusters test-hostile demo demo-postgres demo-krane demo-agentjob demo-nodepool demo-application images images-push release release-push door lint tidy generate fuzz count-lines consumer-cost site plots

help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '%-15s %s\n' "$$t" "$$d"; done

kube: ## Build the Kubernetes for tests and demo, with progress (minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild
helm: ## Build the Helm that a test installs a chart with (two minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild helm
versitygw: ## Build the server of S3 for tests and demo (two minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild versitygw

test: ## Test the programs and packages, in a quarter of an hour on two cores once Kubernetes is built: what a change needs before it is committed
	@$(TESTRUN) quick
test-all: ## Test the rest: long tests, the race detector, the newest client-go, releases, alerts (most of an hour)
	@$(TESTRUN) rest

demo: $(if $(CONTEXT),,kube) ## Show it on a real Kubernetes: KEEP=1 keeps it running, CONTEXT=name uses your cluster
	$(WORK) $(GO) run ./cmd/demo $(if $(KEEP),--keep) $(if $(CONTEXT),--context '$(CONTEXT)')
demo-postgres: kube ## The demo with everything in a PostgreSQL (Debian: apt-get install postgresql)
	$(WORK) $(GO) run ./cmd/demo --postgres $(if $(KEEP),--keep)
demo-krane: kube ## Show a region with a streaming agent beside a pulling one, and a control plane that is killed: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo regions $(if $(KEEP),--keep)
demo-agentjob: kube ## Show the agent-run operator: a run, its rights, rest, and the end: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo agentjobs $(if $(KEEP),--keep)
demo-nodepool: kube ## Show the node-pool operator with machines that are processes: pods that wait, machines that start, stop and go: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo nodepools $(if $(KEEP),--keep)
demo-application: kube versitygw ## Show the application operator on a real PostgreSQL, S3 and Keycloak: an app, drift, 50 apps, rest, and the end: KEEP=1 keeps it running (4 minutes)
	$(WORK) $(GO) run ./cmd/demo applications $(if $(KEEP),--keep)

test-regions: kube ## Run the agent of regions against the control plane, with faults: every scenario on SQLite and PostgreSQL
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -v -count=1 -timeout 1h ./cmd/e2e/regions
test-clusters: kube ## Run the cluster agent against the control plane, with faults, on SQLite and PostgreSQL: every scenario on both (a quarter of an hour)
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'TestD|TestClusters' ./cmd/e2e/clusters

# What needs no service is in "make test", too.
HOSTILE = ./cmd/e2e/hostile ./cmd/agentjob/operator ./cmd/application/... ./cmd/controlplane/internal/edge/guard ./cmd/controlplane/internal/edge/origin ./cmd/controlplane/internal/state/audit ./cmd/controlplane/internal/state/db ./cmd/controlplane/internal/state/regions ./cmd/shuttle/agent ./cmd/controlplane ./cmd/controlplane/internal/state/clusters
test-hostile: kube versitygw ## Attack the operators as a tenant of one namespace does, on a real Kubernetes, PostgreSQL, S3 and Keycloak (five minutes)
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	$(WORK) $(GO) test -v -count=1 -timeout 30m -run '^TestHostile' $(HOSTILE) 2>&1 | tee "$$out" | grep -v '^figure hostile_'; \
	cases=$$(grep -Ec '^ +--- (PASS|FAIL): TestHostile' "$$out"); breaches=$$(grep -Ec '^ +--- FAIL: TestHostile' "$$out"); \
	echo "figure hostile_cases $$cases count"; echo "figure hostile_breaches $$breaches count"; \
	[ "$$breaches" = 0 ] && ! grep -q '^FAIL' "$$out"

test-long: kube ## What takes longer than "make test" may: every boundary of the agent-run operator's crash matrix, 1,000 jobs, long rests and outages, every scenario of both agents on both databases, long tests under the race detector, and ten times the rows
	TRUEUP_SWEEP=all $(WORK) $(GO) test -v -count=1 -timeout 2h -run 'Crashes|ManyJobs|ServerIsAway' ./cmd/agentjob/operator
	TRUEUP_SWEEP=all $(WORK) $(GO) test -v -count=1 -timeout 1h -run Crashes ./cmd/nodepool/operator
	TRUEUP_SWEEP=all $(WORK) $(GO) test -count=1 -timeout 1h -run Anywhere ./apply
	$(WORK) $(GO) test -count=1 -timeout 1h ./cmd/controlplane/internal/state/regions
	$(WORK) $(GO) test -count=1 -timeout 1h $(RACE) ./apply ./reconcile/... ./statesync/... ./cloud/... ./cmd/krane/... ./cmd/shuttle/agent ./cmd/controlplane/internal/state/...
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -count=1 -timeout 1h $(RACE) ./cmd/e2e/regions
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -count=1 -timeout 1h $(RACE) -run 'TestD|TestClusters' ./cmd/e2e/clusters
	TRUEUP_SWEEP=all $(WORK) $(GO) test -count=1 -timeout 1h $(RACE) ./cmd/application/...
	$(MAKE) --no-print-directory test-hostile
	cd internal/release && $(ALONE) $(GO) test -v -count=1 -timeout 2h ./...

REPO ?= ghcr.io/seed-9e1ffd66/trueup
images: ## Build the container images of all programs, for linux/amd64 and linux/arm64, into dist/images (VERSION=v0.1.0; PROGRAMS=shuttle,krane for some; minutes the first time)
	cd internal/release && $(ALONE) $(GO) run . images --out '$(CURDIR)/dist' $(if $(VERSION),--version $(VERSION)) $(if $(PROGRAMS),--programs $(PROGRAMS))
images-push: ## The same, pushed below REPO (REPO=registry.example.com/team/trueup), with the credentials of docker login
	cd internal/release && $(ALONE) $(GO) run . images --out '$(CURDIR)/dist' --push '$(REPO)' $(if $(VERSION),--version $(VERSION)) $(if $(PROGRAMS),--programs $(PROGRAMS))
release: ## Build a release into dist/VERSION (VERSION=v0.1.0, KEY=file) and tag its modules; pushes nothing (docs/releasing.md)
	@[ -n '$(VERSION)' ] || { echo 'VERSION: is required, such as VERSION=v0.1.0'; exit 2; }
	cd internal/release && $(ALONE) $(GO) run . cut --out '$(CURDIR)/dist/$(VERSION)' --version '$(VERSION)' $(if $(KEY),--key '$(abspath $(KEY))')
release-push: ## Push the images of dist/VERSION (VERSION=v0.1.0) below REPO, with the credentials of docker login
	cd internal/release && $(ALONE) $(GO) run . push --out '$(CURDIR)/dist/$(VERSION)' --version '$(VERSION)' --push '$(REPO)'
door: statesync/readers/typescript/node_modules/.package-lock.json ## Try what a stranger meets: count the rows of docs/expected.md, get every module from a local module proxy in empty folders, run the readers in other languages (minutes; needs Node 20 and python3)
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; { \
	$(WORK) $(GO) test -v -count=1 -run TableOfWhatIsExpected ./internal/policy && \
	TRUEUP_REQUIRE_SERVICES=1 $(WORK) $(GO) test -v -count=1 ./statesync/readers && \
	(cd internal/release && $(ALONE) $(GO) test -v -count=1 -timeout 1h -run LocalProxy .); } >"$$out" 2>&1; status=$$?; \
	[ $$status = 0 ] || cat "$$out"; grep '^figure ' "$$out"; exit $$status

# Built, not run by "go tool": that would need GOWORK=off, which the linter
# would inherit.
bin/golangci-lint: go.tools.mod go.tools.sum
	$(ALONE) $(GO) build -modfile=go.tools.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Not internal/kube, as above.
lint: bin/golangci-lint ## Lint every module (builds golangci-lint the first time: a minute or two)
	@failed=0; for m in . $(NESTED); do \
		if [ -z "$$($(WORK) $(GO) list ./$$m/... 2>/dev/null)" ]; then continue; fi; \
		echo "lint $$m"; \
		(cd $$m && $(WORK) '$(CURDIR)/bin/golangci-lint' run --config '$(CURDIR)/.golangci.yml' ./...) || failed=1; \
	done; exit $$failed

tidy: ## Run go mod tidy in every module
	$(WORK) $(GO) run ./internal/build/tidy
	@for m in internal/kube internal/helm internal/versitygw internal/release internal/ops internal/policies internal/published internal/published/cainjector $(BENCHES); do (cd $$m && $(ALONE) $(GO) mod tidy) || exit 1; done
	@for f in go.mod go.sum main.go; do cp internal/kube/$$f reconcile/kube/kubetest/module/$$f.txt || exit 1; done # it is embedded

# The test that finds stale code writes it when asked to. The generators are
# those of the versions in go.work.
generate: ## Generate the code of the .proto files, the definitions of AgentJobs, NodePools and Applications, the charts' copies of these, the bases and charts below deploy, the pages below docs/reference, and the lists of metrics
	$(WORK) $(GO) test -count=1 ./cmd/api/ctrl -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/agentjob/internal/crds -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/agentjob -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/nodepool/internal/crds -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/nodepool -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/application/internal/crds -update
	$(WORK) $(GO) test -count=1 -run 'SameHabits|UpToDate' ./cmd/internal/program -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/internal/definitionstest -update
	TRUEUP_UPDATE=1 $(WORK) $(GO) test -count=1 -run TheMetricsAreThoseOfTheList ./cmd/shuttle/agent ./cmd/krane/agent ./cmd/application/operator ./cmd/nodepool/operator ./cmd/agentjob/operator ./cmd/controlplane

fuzz: ## Fuzz every target for FUZZTIME (30s)
	@find . -name '*_test.go' -exec grep -H '^func Fuzz' {} + | sed 's/^\(.*\)\/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*/\1 \2/' | sort | while read -r dir target; do \
		echo "fuzz $$dir $$target"; \
		$(WORK) $(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) $$dir || exit 1; \
	done
count-lines: ## Count the lines of one operator with trueup, inside a Manager, with CreateOrUpdate and in kubebuilder's scaffold (two minutes)
	$(WORK) $(GO) run ./internal/build/countlines -kubebuilder
consumer-cost: ## Count the go.sum lines that importing a package costs, beside a peer
	$(WORK) $(GO) run ./internal/build/consumercost

# npm writes .package-lock.json last.
internal/site/node_modules/.package-lock.json: internal/site/package-lock.json
	npm ci --prefix internal/site --ignore-scripts --no-audit --no-fund && touch $@
statesync/readers/typescript/node_modules/.package-lock.json: statesync/readers/typescript/package-lock.json
	npm ci --prefix statesync/readers/typescript --ignore-scripts --no-audit --no-fund && touch $@
site: internal/site/node_modules/.package-lock.json ## Build the site of these pages into dist/site (needs Node 20; SERVE=1 shows it at http://localhost:4173)
	npm --prefix internal/site run build
	$(if $(SERVE),npm --prefix internal/site run serve)
plots: internal/site/node_modules/.package-lock.json ## Draw docs/plots/*.svg from the figures in docs/plots/figures.txt, or FILE, what a command has printed
	node internal/site/plots.js $(if $(FILE),'$(abspath $(FILE))')

include internal/bench/bench.mk
