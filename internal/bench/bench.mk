# What measures, and runs for long. The Makefile includes it.

BENCH ?= .
BENCHFLAGS ?=
# Modules of their own: what the peers require must not decide what we are built with.
BENCHES = $(addprefix internal/bench/,peers wrangler sync kine pool agentjob)
.PHONY: sizes profiles bench bench-build bench-apply bench-growth bench-cli bench-sync bench-controlplane bench-pool bench-snapshot bench-shuttle bench-vet bench-agentjob bench-sim soak-sync soak-shuttle rooms record pictures

# A measurement that is left out because a service is missing would look like one that was made.
bench-sync bench-controlplane bench-pool bench-agentjob bench-shuttle bench-snapshot bench-sim soak-sync soak-shuttle: export TRUEUP_REQUIRE_SERVICES = 1

# With -help nothing follows the first command.
AFTER = $(if $(filter -h -help --help,$(BENCHFLAGS)),@: )

PATTERNS ?= ./... ./cmd/... ./cloud/aws/... ./statesync/sqlstore/... ./reconcile/controllerruntime/... ./reconcile/operatormetrics/... ./reconcile/simtest/upstream/... ./examples/...
rooms: ## Count how the files of each package use one another: floors, references that run up, groups that all reach each other (PATTERNS=./apply)
	$(WORK) $(GO) run ./internal/build/rooms $(PATTERNS)

record: kube ## Record a session with the command trueup on a real Kubernetes: docs/trueup.cast and its picture docs/trueup.svg
	$(WORK) $(GO) run ./internal/build/record

pictures: ## Draw the status page for the documentation: docs/status-light.png, -dark, -phone (needs Chromium)
	TRUEUP_REQUIRE_SERVICES=1 TRUEUP_PICTURES='$(CURDIR)/docs' $(WORK) $(GO) test -count=1 -run PicturesOf ./cmd/controlplane/internal/front/statuspage
sizes: kube helm versitygw ## Measure what each program costs: size, start until it is ready, memory then; beside an operator on controller-runtime, kubectl and helm (minutes)
	cd internal/bench/agentjob && $(ALONE) CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o '$(CURDIR)/bin/bench-agentjob' .
	$(WORK) $(GO) run ./cmd/demo cost --peer bin/bench-agentjob --helm "$$($(WORK) $(GO) run ./internal/build/kubebuild helm)" $(BENCHFLAGS)

profiles: kube versitygw ## Profile each program at its busiest and at rest, CPU and heap, with flame graphs: dist/profiles (a quarter of an hour); BENCHFLAGS='--only krane'
	$(WORK) $(GO) run ./cmd/demo cost --profiles dist/profiles --starts 1 $(BENCHFLAGS)

bench: ## Run the benchmarks of the root module: BENCH=regexp chooses
	$(WORK) $(GO) test -run='^$$' -bench='$(BENCH)' ./...

bench-build: kube ## Build the comparison of package apply with its peers (minutes the first time)
	cd internal/bench/peers && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench' .
	$(WORK) $(GO) build -o bin/operator ./examples/operator
	$(WORK) $(GO) build -o bin/createorupdate ./examples/internal/createorupdate
	cd internal/bench/wrangler && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-wrangler' .

bench-apply: bench-build ## Measure package apply beside its peers on one kube-apiserver; BENCHFLAGS=-help
	bin/bench -operator bin/operator -operator-peer bin/createorupdate -wrangler bin/bench-wrangler $(BENCHFLAGS)

bench-growth: bench-build ## Measure what package apply costs for each of 1,000 to 1,000,000 objects, and of 100 to 100,000 parents, in a process for each (a quarter of an hour; BENCHFLAGS='-grown-to 100000' for less)
	bin/bench -stages growth $(BENCHFLAGS)

bench-cli: kube helm ## Measure the program trueup beside kubectl and helm, and kapp with BENCHFLAGS='-kapp PROGRAM' (ten minutes); BENCHFLAGS=-help
	$(WORK) CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/trueup ./cmd/trueup
	$(WORK) $(GO) run ./internal/bench/cli $(BENCHFLAGS)

bench-sync: ## Measure package statesync beside its peers, and sqlstore on a PostgreSQL (a quarter of an hour; TRUEUP_BENCH_HELD=1m for less)
	cd internal/bench/sync && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-sync' .
	cd internal/bench/kine && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-kine' .
	bin/bench-sync $(BENCHFLAGS)
	$(AFTER)bin/bench-kine
	$(AFTER)$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=. -benchtime=1x ./statesync/sqlstore
	$(AFTER)$(WORK) $(GO) test -run='^$$' -bench=Stream ./cmd/controlplane/internal/state/regions

bench-agentjob: kube ## Measure the agent-run operator with 1,000 jobs beside one on controller-runtime (10 minutes); BENCHFLAGS=-help
	$(WORK) $(GO) build -o bin/agentjob ./cmd/agentjob
	cd internal/bench/agentjob && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-agentjob' .
	bin/bench-agentjob -operator bin/agentjob $(BENCHFLAGS)

bench-shuttle: kube ## Measure the cluster agent beside the real control plane, and kubectl: 1,000 services from nothing, memory with 500, 5,000 and 10,000 pods (half an hour)
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Shuttle -benchtime=1x ./cmd/shuttle

soak-sync: ## A million commits on each database, with all faults, and killed servers; SEED=n repeats a run
	TRUEUP_SOAK=1000000 $(if $(SEED),TRUEUP_SEED=$(SEED)) $(WORK) $(GO) test -v -timeout 4h -run 'NothingIs(Skipped|Lost)' ./statesync/sqlstore

SOAK ?= 15m
soak-shuttle: kube ## Both agents for SOAK (15m) on each database while links fail, programs are killed and everything is edited; SEED=n repeats a run
	TRUEUP_SOAK=$(SOAK) $(if $(SEED),TRUEUP_SEED=$(SEED)) $(WORK) $(GO) test -v -count=1 -timeout 6h -run TestSoak ./cmd/e2e/clusters ./cmd/e2e/regions

bench-snapshot: ## Measure package snapshot: encoding, memory, and what overlaps, restarts and an outage lose
	$(WORK) $(GO) test -run='^$$' -bench=. ./snapshot
	$(WORK) $(GO) test -v -count=1 -run 'RecordEachMinuteOnce|AnOutageOfAnHour' ./snapshot

bench-controlplane: ## Measure the control plane at 200 writes a second with 500 streams on SQLite, beside go-control-plane, then with 100 to 10,000 (TRUEUP_STREAMS) on two replicas with PostgreSQL, of which one is killed; usage: a million records and a day of a cluster (20 minutes)
	cd internal/bench/sync && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-sync' .
	bin/bench-sync -fanout 500
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Fanout -benchtime=1x ./cmd/controlplane
	TRUEUP_RECORDS=1500000 $(WORK) $(GO) test -v -count=1 -timeout 1h -run TheSumsAre ./cmd/controlplane/internal/state/usage
	$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=ADay -benchtime=1x ./cmd/controlplane/internal/state/usage

bench-pool: kube ## Measure package cloud beside karpenter, on the same pods (minutes the first time); BENCHFLAGS=-help
	cd internal/bench/pool && $(ALONE) $(GO) build -o '$(CURDIR)/bin/bench-pool' .
	bin/bench-pool $(BENCHFLAGS)
	$(AFTER)$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Rest -benchtime=1x ./cmd/nodepool/operator
	$(AFTER)$(WORK) $(GO) test -timeout 1h -run='^$$' -bench=Replay -benchtime=1x ./cmd/nodepool/internal/replay
	$(AFTER)$(WORK) $(GO) run ./cmd/demo nodepools
	$(AFTER)TRUEUP_BATCHES=60000 $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'EveryPlacement|FirstFitDecreasing' ./cloud/demand
	$(AFTER)TRUEUP_BATCHES=300 $(WORK) $(GO) test -v -count=1 -timeout 1h -run 'TheScheduler' ./cloud/kube
	$(AFTER)$(WORK) $(GO) test -v -count=1 -run AHundredStarts ./cloud
	$(AFTER)$(WORK) $(GO) test -v -count=1 -run 'Conforms|FewLines' ./cloud/local ./cloud/cloudtest
	$(AFTER)$(WORK) $(GO) test -v -count=1 -timeout 1h -run 'ALife|Planted|NoMachine' ./internal/sim -histories 10000

# 60 histories of two programs are a million steps.
SIMULATED ?= 60
WORLDS = ./reconcile/simtest/upstream ./examples/converge ./examples/embed ./examples/foreign ./examples/operator \
	$(addprefix ./cmd/,trueup agentjob/operator application/operator nodepool/operator krane/agent shuttle/agent)

bench-sim: kube ## Simulate controllers on an API server (SIMULATED=60 histories each), published ones, and find the planted defects of all simulations (minutes)
	$(WORK) $(GO) test -v -count=1 -timeout 2h ./reconcile/simtest -run 'Sound|Chance|Anywhere|Planted|EachHabit' -histories $(SIMULATED)
	$(WORK) $(GO) test -v -count=1 -cpu=1 -parallel=1 ./reconcile/simtest -run OneSeed -histories $(SIMULATED)
	$(WORK) SIMTEST_STEPS=100000 $(GO) test -v -count=1 -timeout 1h -run 'Conversation' ./reconcile/simtest ./reconcile/simtest/upstream
	TRUEUP_SWEEP=all $(WORK) $(GO) test -v -count=1 -timeout 2h -cpu=1 -parallel=1 -run '(InASimulatedWorld|MayBeKilledAnywhere)$$' $(WORLDS)
	cd internal/published && $(ALONE) PUBLISHED_SEEDS=100 $(GO) test -v -count=1 -timeout 1h .
	cd internal/published/cainjector && $(ALONE) PUBLISHED_SEEDS=100 $(GO) test -v -count=1 -timeout 1h .
	$(WORK) $(GO) test -v -count=1 -run 'Planted|FindsWhatIsWrong' ./statesync/statesynctest
	$(WORK) $(GO) test -v -count=1 -timeout 1h -run 'Planted|ALife' ./internal/sim

bench-vet: bin/golangci-lint ## Vet, test and lint that comparison
	@failed=0; for m in $(BENCHES); do \
		echo "vet, test, lint $$m"; \
		(cd $$m && $(ALONE) $(GO) vet ./... && $(ALONE) $(GO) test ./... && $(ALONE) '$(CURDIR)/bin/golangci-lint' run --config '$(CURDIR)/.golangci.yml' ./...) || failed=1; \
	done; exit $$failed
