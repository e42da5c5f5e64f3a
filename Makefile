# Needs Go and make, nothing else. "make" lists the targets.

SHELL = /bin/sh
GO ?= go
# Flags of every go test: "make test V=" prints a line for each package only.
V ?= -v
# For one package, on a busy machine and with the race detector.
LIMIT = -timeout 30m
FUZZTIME ?= 30s
HISTORIES ?= 4000
BENCH ?= .
BENCHFLAGS ?=

WORK = GOWORK='$(CURDIR)/go.work'
ALONE = GOWORK=off
# The modules of go.work beside the root. While one has no package yet, it is
# passed over.
NESTED = cmd cloud/aws statesync/sqlstore examples
# The race detector needs a C compiler; without one the tests run without it.
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
# What must keep its promises under concurrency runs with the race detector.
RACED = /(reconcile|diff|apply|snapshot|statesync|cloud)(/|$$)
STEPS = vet test-race test-root test-sim test-alone test-release test-ops test-nested test-newest
# What starts a Kubernetes, a minute's work, is not tested twice.
SLOW = /(apply|reconcile/kube|cloud/kube|simtest|internal/test/kubetest|internal/sim|diff/internal)(/|$$)
# go.mod requires the oldest minor of client-go that upstream supports; this is
# the newest, of which the last patch is taken.
NEWEST ?= v0.37

.DEFAULT_GOAL = help
.PHONY: help kube test vet test-race test-root test-sim test-alone test-release test-ops test-nested test-newest images images-push release test-fleet test-starfleet demo demo-postgres demo-krane demo-agentjob demo-nodepool demo-application test-long bench bench-build bench-apply bench-sync bench-controlplane bench-pool bench-snapshot bench-shuttle bench-vet soak-sync soak-shuttle lint tidy fuzz consumer-cost generate helm versitygw bench-agentjob bench-sim

help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r t d; do printf '%-15s %s\n' "$$t" "$$d"; done

kube: ## Build the Kubernetes for tests and demo, with progress (minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild

helm: ## Build the Helm that a test installs a chart with (two minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild helm

versitygw: ## Build the server of S3 for tests and demo (two minutes the first time, then nothing)
	$(WORK) $(GO) run ./internal/build/kubebuild versitygw

# internal/kube is compiled by the target kube. Vetting it means analysing all of
# Kubernetes for one file.
test: kube helm versitygw ## Vet and test every module, to the end also when a step fails; V= for less output
	@failed=; logs=$$(mktemp -d); trap 'rm -rf "$$logs"' EXIT; trap 'exit 1' HUP INT TERM; \
	for step in $(STEPS); do \
		start=$$(date +%s); \
		{ $(MAKE) --no-print-directory $$step 2>&1; echo $$? >"$$logs/status"; } | tee "$$logs/$$step"; \
		[ "$$(cat "$$logs/status")" = 0 ] || failed="$$failed $$step"; \
		echo "step $$step took $$(($$(date +%s) - start)) s"; \
	done; \
	for step in $$failed; do \
		echo "what failed in $$step:"; \
		grep -E -A 4 '^ *--- FAIL|^panic:|DATA RACE|: error:|^[^ ]+\.go:[0-9]+:|^\s+(Error Trace|Error|Messages):' "$$logs/$$step" | cut -c 1-200 | tail -n 60; \
	done; \
	if [ -n "$$failed" ]; then echo "FAIL:$$failed"; exit 1; fi

vet: ## Vet the root module, in the workspace and outside
	$(WORK) $(GO) vet ./...
	$(ALONE) $(GO) vet ./...

test-race: ## The packages of the root module that promise something under concurrency
	$(WORK) $(GO) test $(V) $(LIMIT) $(RACE) $$($(WORK) $(GO) list ./... | grep -E '$(RACED)')

# Thousands of histories of a pool take some minutes; without the race detector,
# since each is one goroutine.
test-sim: ## Simulate HISTORIES (4000) of a pool of machines
	GOGC=400 $(WORK) $(GO) test $(V) $(LIMIT) -count=1 ./internal/sim -histories $(HISTORIES)

test-root: ## The other packages of the root module
	$(WORK) $(GO) test $(V) $$($(WORK) $(GO) list ./... | grep -Ev '$(RACED)|/internal/sim$$')

# go.work raises the versions that the root module is built with; its users get
# those of its go.mod.
test-alone: ## The root module as its users get it, outside the workspace
	$(ALONE) $(GO) test $(V) $$($(ALONE) $(GO) list ./... | grep -Ev '$(SLOW)')

# What it compiles takes minutes, and is tested in test-long.
test-release: ## What builds images and releases
	cd internal/release && $(ALONE) $(GO) vet ./... && $(ALONE) $(GO) test $(V) -short ./...

# A module of its own: Prometheus' packages are large.
test-ops: ## The alerts and dashboards in ops/, with Prometheus' own packages
	cd internal/ops && $(ALONE) $(GO) vet ./... && $(ALONE) $(GO) test $(V) ./...

# The client of EC2 takes minutes to compile, twice with the race detector; what
# runs concurrently around it is in package cloud. What is tested with it waits for
# machines most of the time, fleet and starfleet for graces; their agents are tested with the
# detector in packages of their own, and both themselves in test-long.
UNRACED = /(cloud/aws|nodepool|fleet|starfleet|application)(/|$$)
test-nested: ## The other modules of the workspace
	@failed=; for m in $(NESTED); do \
		all=$$($(WORK) $(GO) list ./$$m/... 2>/dev/null); \
		if [ -z "$$all" ]; then echo "$$m has no packages yet"; continue; fi; \
		echo "$$m: vet, test"; \
		$(WORK) $(GO) vet ./$$m/... || failed=1; \
		raced=$$(echo "$$all" | grep -Ev '$(UNRACED)' || true); plain=$$(echo "$$all" | grep -E '$(UNRACED)' || true); \
		if [ -n "$$raced" ]; then $(WORK) $(GO) test $(V) $(LIMIT) $(RACE) $$raced || failed=1; fi; \
		if [ -n "$$plain" ]; then $(WORK) $(GO) test $(V) $(LIMIT) -parallel 4 $$plain || failed=1; fi; \
	done; [ -z "$$failed" ]

# With a go.mod of its own, in a folder that it removes: the checkout stays as it
# is. A minor that needs a newer Go is an error of go get.
test-newest: kube ## The packages that use client-go, with its newest minor (NEWEST=v0.37)
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; trap 'exit 1' HUP INT TERM; \
	cp go.mod go.sum "$$dir"; \
	export GOWORK=off GOTOOLCHAIN=$$($(GO) env GOVERSION); \
	$(GO) get -modfile="$$dir/go.mod" k8s.io/client-go@$(NEWEST) k8s.io/apimachinery@$(NEWEST); \
	$(GO) list -modfile="$$dir/go.mod" -mod=mod -m k8s.io/client-go k8s.io/apimachinery; \
	$(GO) vet -modfile="$$dir/go.mod" -mod=mod ./diff/... ./apply/... ./reconcile/...; \
	$(GO) test $(V) -short -modfile="$$dir/go.mod" -mod=mod ./diff/... ./apply/... ./reconcile/...

demo: $(if $(CONTEXT),,kube) ## Show it on a real Kubernetes: KEEP=1 keeps it running, CONTEXT=name uses your cluster
	$(WORK) $(GO) run ./cmd/demo $(if $(KEEP),--keep) $(if $(CONTEXT),--context '$(CONTEXT)')

demo-postgres: kube ## The demo with everything in a PostgreSQL (Debian: apt-get install postgresql)
	$(WORK) $(GO) run ./cmd/demo --postgres $(if $(KEEP),--keep)

demo-krane: kube ## Show two regions, each with a pulling and a streaming agent, on one control plane: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo regions $(if $(KEEP),--keep)

test-fleet: kube ## Run the agent of regions against the control plane, with faults, on SQLite and PostgreSQL
	$(WORK) $(GO) test -v -count=1 ./cmd/internal/fleet

test-starfleet: kube ## Run the cluster agent against the control plane, with faults, on SQLite and PostgreSQL: every scenario on both (a quarter of an hour)
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'TestD|TestStarfleet' ./cmd/internal/starfleet

demo-agentjob: kube ## Show the agent-run operator: a run, another prompt, rights, a schedule, and the end: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo agentjobs $(if $(KEEP),--keep)

demo-nodepool: kube ## Show the node-pool operator on an emulated EC2: pods that wait, machines that start, stop and go: KEEP=1 keeps it running
	$(WORK) $(GO) run ./cmd/demo nodepools $(if $(KEEP),--keep)

demo-application: kube versitygw ## Show the application operator on a real PostgreSQL, S3 and Keycloak: an app, drift, a preview that expires, 50 apps, rest, and the end: KEEP=1 keeps it running (7 minutes)
	$(WORK) $(GO) run ./cmd/demo applications $(if $(KEEP),--keep)

test-long: kube ## What takes longer than "make test" may: every boundary of the agent-run operator's crash matrix, 1,000 jobs, long rests and outages, every scenario of the cluster agent on both databases, and ten times the rows
	TRUEUP_SWEEP=all $(WORK) $(GO) test -v -count=1 -timeout 2h -run 'Crashes|ManyJobs|ServerIsAway' ./cmd/internal/agentjob
	TRUEUP_SWEEP=all $(WORK) $(GO) test -v -count=1 -timeout 1h -run Crashes ./cmd/internal/nodepool
	$(WORK) $(GO) test -count=1 ./cmd/internal/cluster
	$(WORK) $(GO) test -count=1 -timeout 1h $(RACE) ./cmd/internal/fleet
	TRUEUP_SCENARIOS=all $(WORK) $(GO) test -count=1 -timeout 1h $(RACE) -run 'TestD|TestStarfleet' ./cmd/internal/starfleet
	TRUEUP_SWEEP=all $(WORK) $(GO) test -count=1 -timeout 1h $(RACE) ./cmd/internal/application/...
	cd internal/release && $(ALONE) $(GO) test -v -count=1 ./...

bench: ## Run the benchmarks of the root module: BENCH=regexp chooses
	$(WORK) $(GO) test -run='^$$' -bench='$(BENCH)' ./...

REPO ?= ghcr.io/seed-9e1ffd66/trueup
images: ## Build the container images of all programs, for linux/amd64 and linux/arm64, into dist/images (VERSION=v0.1.0; PROGRAMS=shuttle,krane for some; minutes the first time)
	cd internal/release && $(ALONE) $(GO) run . images --out '$(CURDIR)/dist' $(if $(VERSION),--version $(VERSION)) $(if $(PROGRAMS),--programs $(PROGRAMS))

images-push: ## The same, pushed below REPO (REPO=registry.example.com/team/trueup), with the credentials of docker login
	cd internal/release && $(ALONE) $(GO) run . images --out '$(CURDIR)/dist' --push '$(REPO)' $(if $(VERSION),--version $(VERSION)) $(if $(PROGRAMS),--programs $(PROGRAMS))

release: ## Build a release into dist/VERSION (VERSION=v0.1.0): archives, images, bills of materials, notes, checksums
	@[ -n '$(VERSION)' ] || { echo 'VERSION: is required, such as VERSION=v0.1.0'; exit 2; }
	cd internal/release && $(ALONE) $(GO) run . archive --out '$(CURDIR)/dist/$(VERSION)' --version '$(VERSION)'

# Modules of their own: what the peers require must not decide what we are built
# with.
bench-build: kube ## Build the comparison of package apply with its peers (minutes the first time)
	cd internal/bench/peers && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench' .
	$(WORK) $(GO) build -o bin/operator ./examples/operator
	cd internal/bench/wrangler && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-wrangler' .

bench-apply: bench-build ## Measure package apply beside its peers on one kube-apiserver; BENCHFLAGS=-help
	bin/bench -operator bin/operator -wrangler bin/bench-wrangler $(BENCHFLAGS)

bench-sync: ## Measure package statesync beside its peers, and sqlstore on a PostgreSQL (a quarter of an hour; TRUEUP_BENCH_HELD=1m for less)
	cd internal/bench/sync && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-sync' .
	cd internal/bench/kine && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-kine' .
	bin/bench-sync $(BENCHFLAGS)
	bin/bench-kine
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=. -benchtime=1x ./statesync/sqlstore
	$(WORK) $(GO) test -run='^$$' -bench=Stream ./cmd/internal/cluster

bench-agentjob: kube ## Measure the agent-run operator with 1,000 jobs beside one on controller-runtime (10 minutes); BENCHFLAGS=-help
	$(WORK) $(GO) build -o bin/agentjob ./cmd/agentjob
	cd internal/bench/agentjob && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-agentjob' .
	bin/bench-agentjob -operator bin/agentjob $(BENCHFLAGS)

bench-shuttle: kube ## Measure the cluster agent beside the real control plane: 1,000 services from nothing, memory with 500 and 5,000 pods (a quarter of an hour)
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Shuttle -benchtime=1x ./cmd/shuttle

soak-sync: ## A million commits on each database, with all faults, and killed servers; SEED=n repeats a run
	TRUEUP_SOAK=1000000 $(if $(SEED),TRUEUP_SEED=$(SEED)) $(WORK) $(GO) test -v -timeout 4h -run 'NothingIs(Skipped|Lost)' ./statesync/sqlstore

SOAK ?= 15m
soak-shuttle: kube ## The cluster agent for SOAK (15m) on each database while links fail, programs are killed and everything is edited; SEED=n repeats a run
	TRUEUP_SOAK=$(SOAK) $(if $(SEED),TRUEUP_SEED=$(SEED)) $(WORK) $(GO) test -v -count=1 -timeout 6h -run TestSoak ./cmd/internal/starfleet

bench-snapshot: ## Measure package snapshot: encoding, memory, and what overlaps, restarts and an outage lose
	$(WORK) $(GO) test -run='^$$' -bench=. ./snapshot
	$(WORK) $(GO) test -v -count=1 -run 'RecordEachMinuteOnce|AnOutageOfAnHour' ./snapshot

bench-controlplane: ## Measure the control plane with 500 streams on SQLite, then with 5,000 on two replicas with PostgreSQL, of which one is killed, at 200 writes a second (five minutes)
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Fanout -benchtime=1x ./cmd/controlplane

bench-pool: kube ## Measure package cloud beside karpenter, on the same pods (minutes the first time); BENCHFLAGS=-help
	cd internal/bench/pool && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-pool' .
	bin/bench-pool $(BENCHFLAGS)
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Rest -benchtime=1x ./cmd/internal/nodepool
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Replay -benchtime=1x ./cmd/internal/nodepool/replay
	$(WORK) $(GO) run ./cmd/demo nodepools
	TRUEUP_BATCHES=60000 $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'EveryPlacement|FirstFitDecreasing' ./cloud
	TRUEUP_BATCHES=300 $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'TheScheduler' ./cloud/kube
	$(WORK) $(GO) test -v -count=1 -run AHundredStarts ./cloud
	$(WORK) $(GO) test -v -count=1 -timeout 1h -run 'ALife|Planted|NoMachine' ./internal/sim -histories 10000

# 150 histories of two programs are a million steps and more.
SIMULATED ?= 150
bench-sim: ## Simulate controllers on an API server (SIMULATED=150 histories each), and find the planted defects of all simulations (minutes)
	$(WORK) $(GO) test -v -count=1 -timeout 2h ./simtest -run 'Sound|Chance|OneSeed|Anywhere|Planted' -histories $(SIMULATED)
	$(WORK) $(GO) test -v -count=1 -timeout 1h -run 'Simulated|Anywhere' ./examples/foreign ./examples/managedfields
	$(WORK) $(GO) test -v -count=1 -run 'Planted|FindsWhatIsWrong' ./statesync/statesynctest
	$(WORK) $(GO) test -v -count=1 -timeout 1h -run 'Planted|ALife' ./internal/sim

bench-vet: bin/golangci-lint ## Vet, test and lint that comparison
	@failed=0; for m in internal/bench/peers internal/bench/wrangler internal/bench/sync internal/bench/kine internal/bench/pool internal/bench/agentjob; do \
		echo "vet, test, lint $$m"; \
		(cd $$m && $(ALONE) $(GO) vet ./... && $(ALONE) $(GO) test ./... && $(ALONE) '$(CURDIR)/bin/golangci-lint' run --config '$(CURDIR)/.golangci.yml' ./...) || failed=1; \
	done; exit $$failed

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
	cd internal/kube && $(ALONE) $(GO) mod tidy
	cd internal/helm && $(ALONE) $(GO) mod tidy
	cd internal/versitygw && $(ALONE) $(GO) mod tidy
	cd internal/release && $(ALONE) $(GO) mod tidy
	cd internal/ops && $(ALONE) $(GO) mod tidy
	cd internal/bench/peers && $(ALONE) $(GO) mod tidy
	cd internal/bench/wrangler && $(ALONE) $(GO) mod tidy
	cd internal/bench/sync && $(ALONE) $(GO) mod tidy
	cd internal/bench/kine && $(ALONE) $(GO) mod tidy
	cd internal/bench/pool && $(ALONE) $(GO) mod tidy
	cd internal/bench/agentjob && $(ALONE) $(GO) mod tidy

# The test that finds stale code writes it when asked to. The generators are
# those of the versions in go.work.
generate: ## Generate the code of the .proto files, the definitions of AgentJobs, NodePools and Applications, the charts' copies of these, the bases below deploy, and the lists of metrics
	$(WORK) $(GO) test -count=1 ./cmd/api/ctrl -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/internal/agentjob/crds -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/agentjob -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/internal/nodepool/crds -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/nodepool -update
	$(WORK) $(GO) test -count=1 -run UpToDate ./cmd/internal/application/crds -update
	$(WORK) $(GO) test -count=1 -run SameHabits ./cmd/internal/program -update
	TRUEUP_UPDATE=1 $(WORK) $(GO) test -count=1 -run TheMetricsAreThoseOfTheList ./cmd/internal/shuttle ./cmd/internal/krane/agent ./cmd/internal/application ./cmd/internal/nodepool ./cmd/internal/agentjob ./cmd/controlplane

fuzz: ## Fuzz every target for FUZZTIME (30s)
	@find . -name '*_test.go' -exec grep -H '^func Fuzz' {} + | sed 's/^\(.*\)\/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*/\1 \2/' | sort | while read -r dir target; do \
		echo "fuzz $$dir $$target"; \
		$(WORK) $(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) $$dir || exit 1; \
	done

consumer-cost: ## Count the go.sum lines that importing a package costs, beside a peer
	$(WORK) $(GO) run ./internal/build/consumercost
