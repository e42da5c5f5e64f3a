package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// marks are what trueup is measured by. The hard ones are exact and must hold on
// any machine; times depend on it, and are told as they are.
func (b *bench) marks() []benchfigures.Mark {
	if len(b.stages) == 1 && b.runs("growth") {
		return b.growthMarks()
	}
	n := fmt.Sprintf("%d", b.objects)
	each := func(figure string, whose ...string) []string {
		for i := range whose {
			whose[i] += "." + figure
		}
		return whose
	}
	marks := []benchfigures.Mark{
		{
			ID: "D1", What: "requests in " + fmt.Sprint(sweeps) + " sweeps over " + n + " unchanged objects (peers: per object and sweep)",
			Figure: "trueup.sweep_requests", Hard: b.runs("rest"),
			Peers: each("sweep_requests_per_object", "flux_4", "plain_8", "CreateOrUpdate", carefulPeer, "wrangler_canonical", "wrangler_0.1"),
		},
		{ID: "D1", What: "lists and watches in these sweeps", Figure: "trueup.sweep_lists_and_watches", Hard: b.runs("rest")},
		{
			ID: "D1", What: "lists and watches after a restart, one for each kind", Figure: "trueup.restart_lists_and_watches",
			Limit: float64(len(benchobjects.Resources())), Exactly: true, Hard: b.runs("rest"),
		},
		{ID: "D1", What: "requests after restarts, beside lists and watches", Figure: "trueup.restart_requests", Hard: b.runs("rest")},
		{
			ID:      "D2",
			What:    "flux ApplyAll against ours, time of a sweep for each unchanged object",
			Figure:  "flux_4_takes.sweep_ratio",
			Limit:   500,
			AtLeast: true,
			Peers:   each("sweep_ratio", "flux_1_takes", "plain_8_takes", "CreateOrUpdate_takes", carefulPeer+"_takes", "wrangler_canonical_takes"),
		},
		{
			ID:     "D2",
			What:   "sweep over " + n + ", for each unchanged object",
			Figure: "trueup.sweep_us_per_object",
			Limit:  1,
			Peers: each(
				"sweep_us_per_object",
				"flux_4",
				"flux_1",
				"plain_8",
				"plain_1",
				"CreateOrUpdate",
				carefulPeer,
				"wrangler_canonical",
				"wrangler_0.1",
			),
			Ratio: "flux_4_takes.sweep_ratio",
		},
		{ID: "D2", What: "first pass after a restart, for each object", Figure: "trueup.restart_first_pass_us_per_object", Limit: 80},
		{ID: "D2", What: "the same with the lists", Figure: "trueup.restart_with_lists_us_per_object", NoLimit: true},
		{
			ID:      "D3",
			What:    "requests for each created object",
			Figure:  "trueup.create_requests_per_object",
			Limit:   1,
			Exactly: true,
			Hard:    b.runs("rest"),
			Peers:   each("create_requests_per_object", "flux_4", "plain_8", "CreateOrUpdate", "wrangler_0.1"),
		},
		{
			ID:      "D3",
			What:    "requests for each repaired object",
			Figure:  "trueup.repair_requests_per_object",
			Limit:   1,
			Exactly: true,
			Hard:    b.runs("create"),
			Peers:   each("repair_requests_per_object", "flux_4", "plain_8", "CreateOrUpdate"),
		},
		{
			ID:      "D3",
			What:    "creating, against a bare loop of 8 concurrent applies",
			Figure:  "of_plain_8.create_rate_ratio",
			Limit:   0.9,
			AtLeast: true,
			Peers:   each("create_rate", "trueup", "plain_8"),
		},
		{
			ID: "D3", What: "creating, against flux ApplyAll", Figure: "of_flux_4.create_rate_ratio", Limit: 2, AtLeast: true,
			Peers: each("create_rate", "flux_4", "CreateOrUpdate", "wrangler_0.1"),
		},
		{
			ID:      "D4",
			What:    "foreign edit answered until its repair is seen, p50",
			Figure:  "trueup.repair_p50_ms",
			NoLimit: true,
			Peers:   each("repair_p50_ms", "CreateOrUpdate"),
		},
		{
			ID:     "D4",
			What:   "the same, p99 of " + fmt.Sprint(b.edits) + " edits",
			Figure: "trueup.repair_p99_ms",
			Limit:  100,
			Peers:  each("repair_p99_ms", "CreateOrUpdate"),
		},
		{
			ID:     "D5",
			What:   fmt.Sprintf("resident memory for each of %d watched objects", b.watched),
			Figure: "trueup.resident_bytes_per_object",
			Limit:  500,
			Peers: each(
				"resident_bytes_per_object",
				"informer",
				"stripped_informer",
				"metadata_informer",
				"stripped_metadata_informer",
			),
			Ratio: "informer_takes.memory_ratio",
		},
		{
			ID: "D5", What: "the same with the desired state", Figure: "trueup.resident_bytes_per_object_in_all", NoLimit: true,
			Peers: each("resident_bytes_per_object_in_all", "informer", "stripped_informer", "metadata_informer", "stripped_metadata_informer"),
		},
		{
			ID: "D6", What: "allocations for each unchanged object in a sweep", Figure: "trueup.sweep_allocations_per_object", Hard: b.runs("rest"),
			Peers: each("sweep_allocations_per_object", "flux_4", "plain_8", "CreateOrUpdate", carefulPeer, "wrangler_canonical"),
		},
	}
	return append(append(marks, b.partsMarks(each)...), b.embeddedMarks(each)...)
}

// embeddedMarks are those of an operator in a Manager, beside one on CreateOrUpdate there.
func (b *bench) embeddedMarks(each func(string, ...string) []string) []benchfigures.Mark {
	n := fmt.Sprintf("%d parents of 10 children", b.parents)
	zero := func(what, figure string) benchfigures.Mark {
		return benchfigures.Mark{
			ID: "E1", What: "in a Manager, " + n + ": requests " + what, Figure: "trueup." + figure, Hard: b.runs("embedded"),
			Peers: each(figure, "CreateOrUpdate"),
		}
	}
	return []benchfigures.Mark{
		zero("in "+embeddedIdle.String()+" at rest", "embedded_requests_at_rest"),
		zero("in a pass for each", "embedded_requests_in_a_pass_for_each"),
		zero("after a restart, beside lists and watches", "embedded_requests_after_restart"),
		{
			ID: "E1", What: "memory of CreateOrUpdate in a Manager for each child, against ours",
			Figure: "CreateOrUpdate_takes.embedded_resident_bytes_per_object_ratio", Limit: 5, AtLeast: true,
			Peers: each("embedded_resident_bytes_per_object", "trueup", "CreateOrUpdate"),
		},
		{
			ID: "E1", What: "children created in a second in a Manager, against CreateOrUpdate",
			Figure: "of_CreateOrUpdate.embedded_create_ratio", Limit: 1, AtLeast: true,
			Peers: each("embedded_create_rate", "trueup", "CreateOrUpdate"),
		},
		{
			ID:      "E1",
			What:    "the same, until the operator sends nothing more",
			Figure:  "of_CreateOrUpdate.embedded_create_until_silent_ratio",
			NoLimit: true,
			Peers:   each("embedded_create_rate_until_silent", "trueup", "CreateOrUpdate"),
		},
	}
}

// partsMarks are those of operators with a part for each parent.
func (b *bench) partsMarks(each func(string, ...string) []string) []benchfigures.Mark {
	n := fmt.Sprintf("%d parents of 10 children", b.parents)
	return []benchfigures.Mark{
		{
			ID:     "D8",
			What:   "requests in " + fmt.Sprint(sweeps) + " passes for each of " + n + " (peer: in a pass)",
			Figure: "trueup.parts_requests_at_rest",
			Hard:   b.runs("parts"),
			Peers:  each("parts_requests_at_rest_per_pass", "CreateOrUpdate"),
		},
		{
			ID: "D8", What: "requests after a restart, beside lists and watches", Figure: "trueup.parts_requests_after_restart",
			Hard: b.runs("parts"), Peers: each("parts_requests_after_restart", "CreateOrUpdate"),
		},
		{
			ID: "D8", What: "pass for a parent with 10 unchanged children", Figure: "trueup.parts_pass_us", Limit: 10,
			Peers: each("parts_pass_us", "CreateOrUpdate"), Ratio: "CreateOrUpdate_takes.parts_pass_ratio",
		},
		{ID: "D8", What: "allocations for each unchanged child in a pass", Figure: "trueup.parts_allocs_per_child", Hard: b.runs("parts")},
		{
			ID:     "D8",
			What:   "prune of one part of 10 children beside 10,000 other parts, against beside 10",
			Figure: "trueup.parts_prune_flat",
			Limit:  1.3,
		},
		{ID: "D8", What: "the same when it deletes them", Figure: "trueup.parts_prune_deleting_flat", Limit: 1.3},
		{
			ID:     "D8",
			What:   fmt.Sprintf("resident memory for each of %d watched children", b.watched),
			Figure: "trueup.parts_bytes_per_child",
			Limit:  500,
			Peers:  each("parts_bytes_per_child", "informer"),
			Ratio:  "informer_takes.parts_memory_ratio",
		},
		{
			ID:      "D8",
			What:    "children created in a second, against CreateOrUpdate",
			Figure:  "of_CreateOrUpdate.parts_create_ratio",
			Limit:   1.3,
			AtLeast: true,
			Peers:   each("parts_create_rate", "trueup", "CreateOrUpdate"),
		},
		{
			ID:      "D8",
			What:    "the same, until the operator sends nothing more",
			Figure:  "of_CreateOrUpdate.parts_create_until_silent_ratio",
			NoLimit: true,
			Peers:   each("parts_create_rate_until_silent", "trueup", "CreateOrUpdate"),
		},
		{
			ID:     "A5",
			What:   fmt.Sprintf("resident memory of examples/operator with %d parents of 3 children", b.parents),
			Figure: "operator.resident_mib",
			Limit:  30,
			Peers:  []string{"operator.resident_mib", "CreateOrUpdate.operator.resident_mib"},
		},
	}
}

// runs reports whether a stage is asked for: what it would measure is not missed
// otherwise.
func (b *bench) runs(stage string) bool { return slices.Contains(b.stages, stage) }

// report prints the table. The error names the hard marks that are missed.
func (b *bench) report(ctx context.Context, begun time.Time) error {
	table, missed := b.book.Table(b.marks())
	load, _ := b.book.Get("machine.load_average_at_begin")
	_, err := fmt.Fprintf(
		b.book.Out,
		"\nMeasured %s on %d cores (load average before: %.1f) in %s, with %s.\n\n%s",
		begun.UTC().
			Format(time.DateOnly),
		runtime.NumCPU(),
		load.Value,
		time.Since(begun).Round(time.Second),
		strings.Join(b.versions(ctx), ", "),
		table,
	)
	return errors.Join(err, missed)
}

// versions names what took part.
func (b *bench) versions(ctx context.Context) []string {
	versions := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go")}
	var server struct {
		ServerVersion struct{ GitVersion string } `json:"serverVersion"`
	}
	out, err := b.cluster.Kubectl(ctx, "version", "--output=json")
	if err == nil && json.Unmarshal([]byte(out), &server) == nil {
		versions = append(versions, "kube-apiserver "+server.ServerVersion.GitVersion)
	}
	own, _ := debug.ReadBuildInfo()
	versions = append(versions, required(own, "k8s.io/client-go", "github.com/fluxcd/pkg/ssa", "sigs.k8s.io/controller-runtime")...)
	if b.wrangler != "" {
		if other, err := buildinfo.ReadFile(b.wrangler); err == nil {
			for _, version := range required(other, "github.com/rancher/wrangler/v3", "k8s.io/client-go") {
				versions = append(versions, version+" (in a program of its own)")
			}
		} else {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	return versions
}

func required(info *debug.BuildInfo, paths ...string) []string {
	var found []string
	if info == nil {
		return found
	}
	for _, path := range paths {
		for _, module := range info.Deps {
			if module.Path == path {
				found = append(found, path+" "+module.Version)
			}
		}
	}
	return found
}
