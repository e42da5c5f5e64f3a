package operator //nolint:testpackage // it shares the names of the kinds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// ours makes an object of a kind of this program.
func ours(kind, name string, spec map[string]any) simtest.Object {
	return simtest.Object{
		"apiVersion": "thurkube.thurbeen.eu/v1alpha1", "kind": kind, "metadata": map[string]any{"namespace": "team", "name": name}, "spec": spec,
	}
}

// Each world has the same definitions, which are read once.
var definedKinds = sync.OnceValue(func() []simtest.Kind {
	kinds, err := upstream.Definitions("../internal/crds/*.yaml")
	if err != nil {
		panic(err)
	}
	return kinds
})

// Each world has the rights that the program ships with.
var shippedRights = sync.OnceValue(func() func(applytest.Request) error {
	text, err := Manifests{Image: "i"}.YAML()
	if err != nil {
		panic(err)
	}
	rights, err := upstream.Rights(text, "team")
	if err != nil {
		panic(err)
	}
	return rights
})

// simulated is the whole program, and a user who edits two AgentJobs and what they
// refer to. The Jobs end by themselves.
func simulated() simtest.Scenario {
	kinds := []simtest.Kind{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Version: "v1", Resource: "secrets", Kind: "Secret"},
		{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount"},
		{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Status: true},
		{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Status: true},
		{Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Status: true},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy"},
	}
	for kind, plural := range map[string]string{
		"Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	} {
		cluster := strings.HasPrefix(kind, "Cluster")
		kinds = append(kinds, simtest.Kind{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: plural, Kind: kind, Cluster: cluster})
	}
	return simtest.Scenario{
		Kinds: append(kinds, definedKinds()...), Machinery: &upstream.Machinery{Scheme: scheme.Scheme}, Rights: shippedRights(),
		Program: func(ctx context.Context, net http.RoundTripper) error {
			o := &Operator{
				Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Namespace: "team", Instance: "one",
				Address: "0", MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
			}
			return o.Start(ctx)
		},
		Actors: []func(*simtest.World, simtest.Change){endJobs, makeAgain},
		Edits:  8, Rest: time.Hour,
		Start: func(w *simtest.World) {
			for _, o := range []simtest.Object{
				{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
					"name": "team", "labels": map[string]any{v1alpha1.LabelAllowAccess: "true"},
				}},
				{
					"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": Ceiling},
					"rules": podRules(),
				},
				ours("ClusterAccess", "access", map[string]any{"rules": podRules()}),
				{
					"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "team", "name": "auth"},
					"data": map[string]any{"token": "aGk="},
				},
				ours("AgentRuntime", "runtime", map[string]any{
					"image": "agent:1", "authEnvVar": "AGENT_TOKEN", "configPath": "/etc/agent", "persistPath": "/data",
				}),
				ours("AgentAuth", "auth", map[string]any{"secretRef": map[string]any{"name": "auth", "key": "token"}}),
				ours("AgentRole", "role", map[string]any{"allowedTools": []any{"Read"}}),
			} {
				if err := w.Create(o); err != nil {
					panic(err)
				}
			}
		},
		Edit: editJobs,
		// What failed is tried again after 5 minutes at the latest, by a process that has
		// waited for the Lease of the one before.
		Bounds: bounds(), Recovery: 5*time.Minute + 30*time.Second,
		Check:     oneRun(),
		Converged: allRan,
		// When a run began, and how it is named, is of its history.
		State: func(*simtest.World) string { return "" },
	}
}

func podRules() []any {
	return []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}}}
}

func editJobs(w *simtest.World) {
	const jobs = "agentjobs.thurkube.thurbeen.eu"
	name := fmt.Sprint("j", w.Random.IntN(2))
	spec := map[string]any{
		"runtimeRef": "runtime", "authRef": "auth", "roleRef": "role",
		"prompt": fmt.Sprint("work ", w.Random.IntN(3)), "suspend": w.Random.IntN(4) == 0,
	}
	if w.Random.IntN(2) == 0 {
		spec["clusterAccessRef"] = "access"
	}
	switch live, act := w.Object(jobs, "team", name), w.Random.IntN(8); {
	case act == 6:
		image := fmt.Sprint("agent:", w.Random.IntN(3))
		_ = w.Update("agentruntimes.thurkube.thurbeen.eu", "team", "runtime", func(o simtest.Object) { // it exists
			o.Set(image, "spec", "image")
		})
	case act == 7:
		resource := []string{"agentroles.thurkube.thurbeen.eu", "agentauths.thurkube.thurbeen.eu", "secrets"}[w.Random.IntN(3)]
		_ = w.Delete(resource, "team", map[bool]string{true: "role", false: "auth"}[strings.HasPrefix(resource, "agentroles")]) // it may be away
	case act == 0:
		_ = w.Delete(jobs, "team", name) // it may not exist
	case act == 1:
		_ = w.Update("agentroles.thurkube.thurbeen.eu", "team", "role", func(o simtest.Object) { // it exists
			o.Set([]any{"Read", fmt.Sprint("Bash(", w.Random.IntN(3), ")")}, "spec", "allowedTools")
		})
	case live == nil:
		_ = w.Create(ours("AgentJob", name, spec)) // its name may still be going
	default:
		_ = w.Update(jobs, "team", name, func(o simtest.Object) { o["spec"] = spec }) // it exists
	}
}

// makeAgain is an actor: the user makes again what AgentJobs refer to, some time after it has gone.
func makeAgain(w *simtest.World, c simtest.Change) {
	kind, _ := c.Before["kind"].(string)
	if c.After != nil || !strings.HasPrefix(kind, "Agent") && kind != "Secret" && kind != "ClusterAccess" || kind == "AgentJob" {
		return
	}
	o := simtest.Object{"metadata": map[string]any{"namespace": "team", "name": c.Before.Name()}}
	for _, field := range []string{"apiVersion", "kind", "spec", "data"} {
		if value, ok := c.Before[field]; ok {
			o[field] = value
		}
	}
	w.After(15*time.Second, func() { _ = w.Create(o) }) // a backup may have brought it back
}

// endJobs is the controller of Jobs.
func endJobs(w *simtest.World, c simtest.Change) {
	if c.After["kind"] != "Job" || c.Before != nil || c.By != "program" {
		return
	}
	name, uid := c.After.Name(), c.After.UID()
	w.After(time.Duration(1+w.Dice("job").IntN(60))*time.Second, func() {
		if live := w.Object("jobs.batch", "team", name); live != nil && live.UID() == uid {
			complete(w, name)
		}
	})
}

// complete has a Job succeed.
func complete(w *simtest.World, name string) {
	_ = w.As("job controller").Update("jobs.batch", "team", name, func(o simtest.Object) { // it exists
		now := time.Now().UTC().Format(time.RFC3339)
		o["status"] = map[string]any{"succeeded": 1, "startTime": now, "completionTime": now, "conditions": []any{
			map[string]any{"type": "Complete", "status": "True", "lastTransitionTime": now},
		}}
	})
}

// oneRun returns a check: no hash of a job is run twice, no two runs of a job are under way at
// once, and no status has the phase of another run than it names.
func oneRun() func(*simtest.World, simtest.Change) error {
	once := simtest.NeverMore("jobs.batch", 1, func(job simtest.Object) string {
		if job.Field("status", "succeeded") != nil {
			return ""
		}
		return job.Owner()
	})
	return func(w *simtest.World, c simtest.Change) error { return errors.Join(once(w, c), ofOneRun(c)) }
}

func ofOneRun(c simtest.Change) error {
	phase := c.After.Field("status", "phase")
	if c.After["kind"] != "AgentJob" || c.By != "program" || c.After.Field("status", "lastRun", "job") == nil {
		return nil
	}
	ended := c.After.Field("status", "lastRun", "outcome") != nil
	if ended && phase == string(v1alpha1.Running) || !ended && phase == string(v1alpha1.Succeeded) {
		return fmt.Errorf("%s is %v, and the outcome of its last run is %v", c.After.Name(), phase, c.After.Field("status", "lastRun", "outcome"))
	}
	conditions, _ := c.After.Field("status", "conditions").([]any)
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if condition["type"] == "Finished" && !ended && condition["reason"] != "Running" {
			return fmt.Errorf("the run of %s is under way, and Finished says %v", c.After.Name(), condition["reason"])
		}
	}
	return nil
}

func allRan(w *simtest.World) (err error) {
	for _, job := range w.Objects("agentjobs.thurkube.thurbeen.eu") {
		phase := job.Field("status", "phase")
		switch suspended := job.Field("spec", "suspend") == true; {
		case job.Deleting():
			err = errors.Join(err, fmt.Errorf("%s is still there", job.Name()))
		case !suspended && phase != string(v1alpha1.Succeeded), suspended && phase != string(v1alpha1.Suspended):
			err = errors.Join(err, fmt.Errorf("%s (suspend: %t) is %v: %v", job.Name(), suspended, phase, job.Field("status", "message")))
		}
	}
	return err
}

func TestTheOperatorInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated()
		switch s.Histories = 8; {
		case os.Getenv("TRUEUP_SWEEP") == "all":
			s.Histories = 20
		case testing.Short():
			s.Histories = 4
		}
		return s
	})
}

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, func() simtest.Scenario {
		s := simulated()
		s.Edits, s.Settle = 2, time.Minute
		return s
	}, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_agentjob_boundaries %d count\n", c.Boundaries)
}
