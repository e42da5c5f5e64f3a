package operator //nolint:testpackage // it shares the scenario of the program

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// bounds returns the bounds of time of C4, C9, C12 and D6.
func bounds() []simtest.Bound {
	late := func(is func(w *simtest.World, job simtest.Object) bool) func(*simtest.World) []string {
		return func(w *simtest.World) (names []string) {
			for _, job := range w.AllStored(simulatedJobs) {
				if !job.Deleting() && is(w, job) {
					names = append(names, job.Name()+" "+job.UID())
				}
			}
			return names
		}
	}
	return []simtest.Bound{
		{What: "the status follows the Job", Within: 5 * time.Second, Late: late(func(w *simtest.World, job simtest.Object) bool {
			run := lastJob(w, job)
			return run.Field("status", "conditions") != nil &&
				(job.Field("status", "lastRun", "outcome") == nil || job.Field("status", "lastCompletionTime") == nil)
		})},
		{What: "its references are looked at", Within: 2 * time.Second, Late: late(func(w *simtest.World, job simtest.Object) bool {
			return resolves(w) == (conditionOf(job, conditionReady)["reason"] == reasonResolve)
		})},
		{What: "it has its config", Within: 5 * time.Second, Late: late(func(w *simtest.World, job simtest.Object) bool {
			return resolves(w) && !configured(w, job)
		})},
		{What: "it runs its image", Within: 5 * time.Second, Late: late(func(w *simtest.World, job simtest.Object) bool {
			run := lastJob(w, job)
			containers, _ := run.Field("spec", "template", "spec", "containers").([]any)
			if job.Field("status", "lastRun", "outcome") == string(v1alpha1.RunDeleted) {
				return false // a restored backup lacks its Job, and it is not run twice
			}
			return resolves(w) && job.Field("spec", "suspend") != true && job.Field("spec", "schedule") == nil && (len(containers) != 1 ||
				containers[0].(map[string]any)["image"] != w.Stored("agentruntimes.thurkube.thurbeen.eu", "team", "runtime").Field("spec", "image"))
		})},
		{What: "revoked rights are gone", Within: 10 * time.Second, Late: late(func(w *simtest.World, job simtest.Object) bool {
			for _, kind := range []string{"clusterroles", "clusterrolebindings"} {
				for _, o := range w.AllStored(kind + ".rbac.authorization.k8s.io") {
					if o.Label(v1alpha1.LabelOwner) == job.UID() && job.Field("spec", "clusterAccessRef") == nil && resolves(w) {
						return true
					}
				}
			}
			return false
		})},
	}
}

// lastJob returns the Job of the last run of an AgentJob.
func lastJob(w *simtest.World, job simtest.Object) simtest.Object {
	name, _ := job.Field("status", "lastRun", "job").(string)
	return w.Stored("jobs.batch", "team", name)
}

// resolves reports whether all that an AgentJob refers to is there.
func resolves(w *simtest.World) bool {
	for _, each := range []string{"agentroles/role", "agentauths/auth", "agentruntimes/runtime"} {
		kind, name, _ := strings.Cut(each, "/")
		if w.Stored(kind+".thurkube.thurbeen.eu", "team", name) == nil {
			return false
		}
	}
	return w.Stored("secrets", "team", "auth") != nil
}

// configured reports whether an AgentJob has a ConfigMap with its prompt and the tools of its role.
func configured(w *simtest.World, job simtest.Object) bool {
	config := w.Stored("configmaps", "team", fmt.Sprint(job.Name(), "-config-", job.Field("status", "configHash")))
	text, _ := config.Field("data", "agent.json").(string)
	var says struct {
		Prompt       any   `json:"prompt"`
		AllowedTools []any `json:"allowedTools"`
	}
	if json.Unmarshal([]byte(text), &says) != nil {
		return false
	}
	return says.Prompt == job.Field("spec", "prompt") &&
		fmt.Sprint(says.AllowedTools) == fmt.Sprint(w.Stored("agentroles.thurkube.thurbeen.eu", "team", "role").Field("spec", "allowedTools"))
}

func conditionOf(o simtest.Object, kind string) map[string]any {
	all, _ := o.Field("status", "conditions").([]any)
	for _, each := range all {
		if c, _ := each.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}

// TestBoundsInASimulatedWorld has the bounds to the second, in histories in which no request fails.
func TestBoundsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated()
		s.Disturbances, s.Prompt, s.Edits, s.Rest, s.Histories = []applytest.Disturbance{}, true, 30, time.Minute, 3
		if testing.Short() {
			s.Histories = 1
		}
		return s
	})
}

// TestCausesInASimulatedWorld is E2: what keeps the pod of a run from running is in Ready's reason
// within 10 s, also when another cause takes the place of the first.
func TestCausesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, func() simtest.Scenario {
		s := simulated()
		s.Disturbances, s.Edits, s.Rest, s.Histories = []applytest.Disturbance{}, 1, time.Minute, 2
		s.Actors = nil // the Job does not end by itself
		s.Edit = func(w *simtest.World) {
			must := func(err error) {
				if err != nil {
					w.Blame("%v", err)
				}
			}
			must(w.Create(ours("AgentJob", "j0", map[string]any{"runtimeRef": "runtime", "authRef": "auth", "roleRef": "role", "prompt": "work"})))
			w.After(20*time.Second, func() { must(w.As("job controller").Create(podOf(w.AllStored("jobs.batch")[0]))) })
			at := 30 * time.Second
			for _, each := range []struct {
				reason string
				status map[string]any
			}{
				{"Unschedulable", map[string]any{"phase": "Pending", "conditions": []any{map[string]any{
					"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
				}}}},
				{"ImagePull", waitingFor("ImagePullBackOff")},
				{"ContainerConfig", waitingFor("CreateContainerConfigError")},
				{"Reconciled", map[string]any{"phase": "Running"}},
			} {
				w.After(at, func() {
					must(w.As("kubelet").Update("pods", "team", "j0-pod", func(o simtest.Object) { o["status"] = each.status }))
					w.Within(10*time.Second, "Ready says "+each.reason, func(w *simtest.World) bool {
						return conditionOf(w.Stored(simulatedJobs, "team", "j0"), conditionReady)["reason"] == each.reason
					})
				})
				at += 20 * time.Second
			}
			w.After(at, func() { complete(w, w.AllStored("jobs.batch")[0].Name()) })
		}
		s.Converged = func(w *simtest.World) error {
			if len(w.AllStored("pods")) == 0 {
				return nil // a world without a user
			}
			return allRan(w)
		}
		return s
	})
}

func podOf(job simtest.Object) simtest.Object {
	labels, _ := job.Field("spec", "template", "metadata", "labels").(map[string]any)
	all := map[string]any{"batch.kubernetes.io/job-name": job.Name()}
	maps.Copy(all, labels)
	return simtest.Object{
		"apiVersion": "v1", "kind": "Pod", "spec": job.Field("spec", "template", "spec"),
		"metadata": map[string]any{"namespace": "team", "name": "j0-pod", "labels": all, "ownerReferences": []any{map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "name": job.Name(), "uid": job.UID(), "controller": true,
		}}},
	}
}

func waitingFor(reason string) map[string]any {
	return map[string]any{
		"phase": "Pending", "conditions": []any{map[string]any{"type": "PodScheduled", "status": "True"}},
		"containerStatuses": []any{map[string]any{
			"name": "agent", "state": map[string]any{"waiting": map[string]any{"reason": reason, "message": "the kubelet's words"}},
		}},
	}
}
