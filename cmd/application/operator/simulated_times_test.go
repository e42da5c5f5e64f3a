package operator_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestRetriesInASimulatedWorld is D9 and C3: a part that fails is tried again after 1 s, 2 s and 4 s,
// each 50 % more or less, and the pass after up to 5 minutes, ever more seldom.
func TestRetriesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	for _, fails := range []int{2, 60} {
		var tries []time.Time
		var ready []string
		r := simtest.Simulate(t, func() simtest.Scenario {
			p, s := newPlatform()
			left := fails
			p.refuses = func(service string) bool {
				if service != theLogins || left == 0 {
					return false
				}
				tries = append(tries, time.Now())
				left--
				return true
			}
			s = scripted(p, s, func(w *simtest.World) error {
				w.After(time.Minute, func() { // no request is slow any more
					if err := w.Create(anApp("blue", "shop", withAll("app:1"))); err != nil {
						panic(err)
					}
					w.After(10*time.Second, func() {
						ready = append(ready, fmt.Sprint(app{w.Object(appsKind, "blue", "shop")}.condition("AuthReady")["reason"]))
					})
				})
				return nil
			})
			s.Settle = 90 * time.Minute
			return s
		}, 1)
		require.Empty(t, r.Wrong)
		tries = tries[:fails] // the others are of the second world
		if fails == 2 {
			require.Equal(t, "Reconciled", ready[0], "the pass succeeds")
		} else {
			require.Equal(t, "Unreachable", ready[0])
		}
		longest := time.Duration(0)
		for n := 1; n < len(tries); n++ {
			gap, of := tries[n].Sub(tries[n-1]), time.Second<<((n-1)%4)
			if n == 4 { // what the first pass made starts another one at once
				continue
			}
			if n%4 == 0 { // of another pass
				require.GreaterOrEqual(t, gap, 24*time.Second)
				require.LessOrEqual(t, gap, 5*time.Minute+time.Second)
				longest = max(longest, gap)
				continue
			}
			require.GreaterOrEqual(t, gap, of/2, n)
			require.LessOrEqual(t, gap, of*3/2+100*time.Millisecond, n)
		}
		require.Equal(t, fails > 2, longest > 3*time.Minute, longest)
	}
}

// TestCausesInASimulatedWorld is E6: what keeps the pods from running is in Ready's reason within
// 10 s, also when another cause takes the place of the first.
func TestCausesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		s.Actors = []func(*simtest.World, simtest.Change){p.note, simtest.Deployments, simtest.ReplicaSets} // and no kubelet
		says := func(w *simtest.World, reason string) {
			w.Within(10*time.Second, "Ready says "+reason, func(w *simtest.World) bool {
				return app{w.Object(appsKind, "blue", "shop")}.condition("Ready")["reason"] == reason
			})
		}
		pod := func(reason string, status map[string]any) func(*simtest.World) error {
			return func(w *simtest.World) error {
				says(w, reason)
				return w.As("kubelet").Update("pods", "blue", w.Objects("pods")[0].Name(), func(o simtest.Object) { o["status"] = status })
			}
		}
		condition := func(kind, status, reason string) map[string]any {
			return map[string]any{"type": kind, "status": status, "reason": reason, "message": "the words of Kubernetes"}
		}
		waiting := func(reason string) map[string]any {
			return map[string]any{
				"phase": "Pending", "conditions": []any{condition("PodScheduled", "True", "")}, "containerStatuses": []any{map[string]any{
					"name": "app", "state": map[string]any{"waiting": map[string]any{"reason": reason, "message": `secret "mine" not found`}},
				}},
			}
		}
		deployment := func(reason string, c map[string]any) func(*simtest.World) error {
			return func(w *simtest.World) error {
				says(w, reason)
				return w.As("controller").Update("deployments.apps", "blue", "shop", func(o simtest.Object) {
					o.Set([]any{c}, "status", "conditions")
				})
			}
		}
		s = scripted(p, s,
			func(w *simtest.World) error {
				return w.Create(anApp("blue", "shop", map[string]any{
					"repository": "github.com/team/app", "framework": "nextjs", "environment": "production", "imageRef": "app:1",
				}))
			},
			deployment("Quota", map[string]any{
				"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: few",
			}),
			deployment("Progressing", condition("ReplicaFailure", "False", "")),
			pod("Unschedulable", map[string]any{
				"phase": "Pending", "conditions": []any{condition("PodScheduled", "False", "Unschedulable")},
			}),
			pod("ContainerConfig", waiting("CreateContainerConfigError")),
			pod("ImagePull", waiting("ImagePullBackOff")),
			deployment("ImagePull", condition("Progressing", "False", "ProgressDeadlineExceeded")),
			func(w *simtest.World) error { return w.Delete(appsKind, "blue", "shop") },
		)
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestCausesOfMigrationsInASimulatedWorld: why their Job has no pod, and what the pod ends with, is in
// the reason of Ready, without the password that the pod has. A usual step is no warning.
func TestCausesOfMigrationsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	var message string
	types := map[any]any{}
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		s.Actors = []func(*simtest.World, simtest.Change){p.note} // and no controller of Jobs
		says := func(w *simtest.World, reason string) {
			w.Within(10*time.Second, "Ready says "+reason, func(w *simtest.World) bool {
				return app{w.Object(appsKind, "blue", "shop")}.condition("Ready")["reason"] == reason
			})
		}
		status := func(w *simtest.World, kind string, o simtest.Object, change func(simtest.Object)) error {
			return w.As("controller").Update(kind, "blue", o.Name(), change)
		}
		return scripted(p, s,
			creation(badImage),
			func(w *simtest.World) error {
				says(w, "Quota")
				job := w.Objects(jobsKind)[0]
				now := time.Now().UTC().Format(time.RFC3339)
				return errors.Join(w.As("controller").Create(simtest.Object{
					"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]any{"namespace": "blue", "name": "few"},
					"regarding": map[string]any{"kind": "Job", "namespace": "blue", "name": job.Name(), "uid": job.UID()},
					"type":      "Warning", "reason": "FailedCreate", "note": "exceeded quota: few", "action": "Create",
					"eventTime": now, "reportingController": "jobs", "reportingInstance": "jobs",
				}), status(w, jobsKind, job, func(o simtest.Object) { o.Set(now, "status", "startTime") }))
			},
			func(w *simtest.World) error {
				says(w, "MigrationFailed")
				job := w.Objects(jobsKind)[0]
				password, err := base64.StdEncoding.DecodeString(fmt.Sprint(w.Object("secrets", "blue", "shop-db").Field("data", "DB_PASSWORD")))
				pod := simtest.Object{"apiVersion": "v1", "kind": "Pod", "spec": job.Field("spec", "template", "spec"), "metadata": map[string]any{
					"namespace": "blue", "name": "one", "labels": job.Field("spec", "template", "metadata", "labels"),
					"ownerReferences": []any{map[string]any{
						"apiVersion": "batch/v1", "kind": "Job", "name": job.Name(), "uid": job.UID(), "controller": true,
					}},
				}}
				return errors.Join(err, w.As("controller").Create(pod), status(w, "pods", pod, func(o simtest.Object) {
					o["status"] = map[string]any{"phase": "Failed", "containerStatuses": []any{map[string]any{
						"name": "migrations", "state": map[string]any{"terminated": map[string]any{
							"exitCode": 3.0, "reason": "Error", "message": "no login with " + string(password),
						}},
					}}}
				}), status(w, jobsKind, job, func(o simtest.Object) {
					o.Set([]any{map[string]any{"type": "Failed", "status": "True"}}, "status", "conditions")
				}))
			},
			func(w *simtest.World) error {
				message = fmt.Sprint(app{w.Object(appsKind, "blue", "shop")}.condition("Ready")["message"])
				for _, o := range w.Objects("events.events.k8s.io") {
					types[o.Field("reason")] = o.Field("type")
				}
				return w.Delete(appsKind, "blue", "shop")
			},
		)
	}, 1)
	require.Empty(t, r.Wrong)
	require.Contains(t, message, "container migrations ended with exit code 3: no login with (password)")
	require.Equal(t, "Normal Warning Warning", fmt.Sprint(types["Migrating"], " ", types["Quota"], " ", types["MigrationFailed"]))
}

// TestAnotherLeaderInASimulatedWorld is D27: a leader is killed while ten Applications are made. All
// run within 60 s, each is made once, and only the leader writes.
func TestAnotherLeaderInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		first, made := true, map[string]bool{}
		var killed atomic.Bool
		judge := p.judge
		p.judge = func(w *simtest.World, name string, before, after *thing) {
			judge(w, name, before, after)
			if before == nil && made[name] {
				w.Blame("%s is made twice", name)
			}
			made[name] = true
		}
		s = scripted(p, s, func(w *simtest.World) error {
			w.Within(60*time.Second, "all run", func(w *simtest.World) bool {
				running := 0
				for _, o := range w.Objects(appsKind) {
					running += count(o.Field("status", "phase") == "Running")
				}
				return running == 10
			})
			var err error
			for n := range 10 {
				err = errors.Join(err, w.Create(anApp("blue", fmt.Sprint("shop", n), withAll("app:1"))))
			}
			return err
		})
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			if !first {
				return p.start(ctx, net, net)
			}
			first = false
			life, kill := context.WithCancel(ctx)
			defer kill()
			writes := 0
			leader := p.operator(net, carrier(func(r *http.Request) (*http.Response, error) {
				if killed.Load() {
					return nil, applytest.ErrCrashed
				}
				if request := applytest.ParseRequest(r); request.Writes() && request.Resource != "leases" {
					if writes++; writes == 40 {
						killed.Store(true)
						kill()
						return nil, applytest.ErrCrashed
					}
				}
				return net.RoundTrip(r)
			}), false)
			second := p.operator(net, carrier(func(r *http.Request) (*http.Response, error) {
				if request := applytest.ParseRequest(r); request.Writes() && request.Resource != "leases" && !killed.Load() {
					t.Errorf("%s, and the other is the leader", request)
				}
				return net.RoundTrip(r)
			}), false)
			done := make(chan error, 1)
			go func() { done <- leader.Start(life) }()
			pause.For(ctx, time.Second) // the first one leads
			return errors.Join(second.Start(ctx), <-done)
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}
