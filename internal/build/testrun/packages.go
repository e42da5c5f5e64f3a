package main

import (
	"cmp"
	"slices"
)

// separate are the modules outside the workspace that have tests.
var separate = []string{ //nolint:gochecknoglobals // constant
	"internal/release", "internal/ops", "internal/policies", "internal/published", "internal/published/cainjector",
}

// comparisons are the modules that only measure, beside others. Their tests are of what makes figures of samples.
var comparisons = []string{ //nolint:gochecknoglobals // constant
	"internal/bench/agentjob", "internal/bench/kine", "internal/bench/peers", "internal/bench/pool",
	"internal/bench/sync", "internal/bench/wrangler",
}

// undisturbed are the packages that share the machine with no other: a browser has many processes, and
// shows nothing for a minute where each of them waits for a processor.
var undisturbed = []string{"./cmd/controlplane/internal/front/statuspage", "./internal/site"} //nolint:gochecknoglobals // constant

// slow are the packages whose tests take longest, the longest first. Those that wait most of the
// time are among them, so that none of them is left when nothing else runs.
var slow = []string{ //nolint:gochecknoglobals // constant
	"./cmd/application/operator", "./reconcile/simtest", "./cmd/nodepool/operator", "./cmd/shuttle/agent", "./apply", "./cmd/demo",
	"./cmd/e2e/clusters", "./cmd/e2e/upgrade", "./cmd/e2e/hostile", "./cmd/e2e/regions", "./examples/kubebuilder",
	"./internal/test/podtest", "./cmd/controlplane/internal/state/regions",
	"./examples/operator", "./cmd/krane/agent", "./reconcile/kube", "./cmd/agentjob/operator",
	"./cmd/application/internal/database", "./internal/sim", "./cloud/aws", "./reconcile/operator",
	"./cmd/application/internal/storage", "./cmd/controlplane/internal/state/clusters",
	"./cmd/controlplane/internal/state/usage", "./cmd/e2e/renewal", "./cloud/kube", "./cmd/shuttle",
	"./statesync/sqlstore", "./cmd/controlplane", "./cmd/nodepool", "./cmd/nodepool/internal/userdata", "./examples/drift",
	"./cmd/krane/render", "./cmd/trueup", "./cmd/internal/program", "./internal/test/ec2test", "./examples/embed",
	"./diff/internal/servertest", "./examples/converge", "./statesync", "./reconcile/controllerruntime",
	"./cmd/application/internal/auth", "./examples/hello", "./reconcile/simtest/upstream", "./reconcile/kube/kubetest",
	"./cloud/local", "./examples/foreign", "./cmd/internal/definitionstest", "./statesync/sqlstore/pgxlisten",
}

// slowestFirst has the slow packages begin first, so that none of them runs alone at the end.
func slowestFirst(packages []string) []string {
	place := func(pkg string) int {
		if i := slices.Index(slow, short(pkg)); i >= 0 {
			return i
		}
		return len(slow)
	}
	slices.SortStableFunc(packages, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	return packages
}

// apart returns the undisturbed packages and the others.
func apart(packages []string) (alone, others []string) {
	for _, pkg := range packages {
		if slices.Contains(undisturbed, short(pkg)) {
			alone = append(alone, pkg)
		} else {
			others = append(others, pkg)
		}
	}
	return alone, others
}
