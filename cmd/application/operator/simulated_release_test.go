package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// release changes the image of blue/shop.
func release(image string, more ...func(simtest.Object)) func(*simtest.World) error {
	return func(w *simtest.World) error {
		return w.Update(appsKind, "blue", "shop", func(o simtest.Object) {
			o["spec"] = withAll(image)
			for _, change := range more {
				change(o)
			}
		})
	}
}

func creation(image string) func(*simtest.World) error {
	return func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll(image))) }
}

// slowly lets two minutes pass after each edit: pods may take half a minute to start.
func slowly(edits ...func(*simtest.World) error) (all []func(*simtest.World) error) {
	idle := func(*simtest.World) error { return nil }
	for _, edit := range edits {
		all = append(all, edit, idle, idle, idle)
	}
	return all
}

// told returns the phase of the Application shop in namespace blue, the reason of its migrations, and
// the image of its Deployment.
func told(w *simtest.World) string {
	a, image := app{w.Object(appsKind, "blue", "shop")}, "none"
	if d := w.Object("deployments.apps", "blue", "shop"); d != nil {
		image = imageOf(d, "spec", "template")
	}
	return fmt.Sprint(a.Field("status", "phase"), " ", a.condition(v1alpha1.ConditionMigrations)["reason"], " ", image)
}

func requires(what string, want, got any) error {
	if want != got {
		return fmt.Errorf("%s: want %v, got %v", what, want, got)
	}
	return nil
}

func jobs(w *simtest.World) int { return len(w.Objects(jobsKind)) }

// TestReleasesInASimulatedWorld: the migrations of an image fail, the image before it is wanted
// again, and then the failed one, which is tried again. An annotation asks for one more run.
func TestReleasesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	var words string
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		made := 0
		s.Actors = append(s.Actors, func(_ *simtest.World, c simtest.Change) {
			if c.Before == nil && c.After["kind"] == "Job" {
				made++
			}
		})
		ask := func(w *simtest.World) error {
			return w.Update(appsKind, "blue", "shop", func(o simtest.Object) { o.Set("1", "metadata", "annotations", v1alpha1.AnnotationMigrate) })
		}
		return scripted(p, s, slowly(
			creation("app:1"),
			func(w *simtest.World) error {
				return errors.Join(requires("first", "Running Reconciled app:1", told(w)), requires("Jobs", 1, jobs(w)), release(badImage)(w))
			},
			func(w *simtest.World) error {
				words = fmt.Sprint(app{w.Object(appsKind, "blue", "shop")}.condition("Ready")["message"])
				return errors.Join(requires("failed", "Failed MigrationFailed app:1", told(w)), requires("Jobs", 2, made), deleteJobs(w))
			},
			func(w *simtest.World) error {
				return errors.Join(requires("still", "Failed MigrationFailed app:1", told(w)), requires("Jobs", 0, jobs(w)), release("app:1")(w))
			},
			func(w *simtest.World) error {
				return errors.Join(
					requires("back", "Running Reconciled app:1", told(w)), requires("Jobs made", 2, made), release(badImage)(w))
			},
			func(w *simtest.World) error {
				return errors.Join(requires("again", "Failed MigrationFailed app:1", told(w)), requires("Jobs made", 3, made), ask(w))
			},
			func(w *simtest.World) error {
				return errors.Join(requires("asked", "Failed MigrationFailed app:1", told(w)), requires("Jobs made", 4, made), release("app:2")(w))
			},
			func(w *simtest.World) error {
				return errors.Join(requires("next", "Running Reconciled app:2", told(w)), requires("Jobs made", 5, made), release("app:1")(w))
			},
			func(w *simtest.World) error {
				return errors.Join(requires("before", "Running Reconciled app:1", told(w)), requires("Jobs made", 5, made))
			},
		)...)
	}, 1)
	require.Empty(t, r.Wrong)
	require.Regexp(t, "^MigrationsReady: Job shop-migrate-[0-9a-f]{12}: (.*; )?Pod shop-migrate-.* another image, "+
		"other settings of the migrations or another value of the annotation platform.internal/migrate run one again$", words)
}

// back goes back to the image of before: the Job that runs is named.
func back(w *simtest.World) error {
	w.Within(20*time.Second, "the Job that runs is named", func(w *simtest.World) bool {
		c := app{w.Object(appsKind, "blue", "shop")}.condition(v1alpha1.ConditionMigrations)
		return c["status"] == "True" && strings.HasSuffix(fmt.Sprint(c["message"]), "of another image runs")
	})
	return release("app:1")(w)
}

// TestAReleaseWaitsForTheMigrationsBeforeItInASimulatedWorld: a new image, while the migrations of
// another run, waits for their end. If their pod does not start, they are given up. A Job that is
// deleted while its pod runs is made again when the pod has ended.
func TestAReleaseWaitsForTheMigrationsBeforeItInASimulatedWorld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lasts  time.Duration // 0: the pod does not start
		during func(*simtest.World) error
		want   []string // the ends of the Jobs
		again  bool     // app:2 is released once more at the end: it has been migrated
	}{
		"it runs":      {time.Minute, release("app:3"), []string{"app:1 Complete", "app:2 Complete", "app:3 Complete"}, true},
		"it waits":     {0, release("app:3"), []string{"app:1 Complete", "app:3 Complete"}, false},
		"back":         {time.Minute, back, []string{"app:1 Complete", "app:2 Complete"}, true},
		"suspended":    {0, suspend, []string{"app:1 Complete", "app:3 Complete"}, false},
		"it is erased": {time.Minute, deleteJobs, []string{"app:1 Complete", "app:2 Complete"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var worlds []*[]string // a second one begins with what the first ends with
			r := simtest.Simulate(t, func() simtest.Scenario {
				p, s := newPlatform()
				ends := &[]string{}
				worlds = append(worlds, ends)
				kubelet := simtest.Kubelet{Runs: func(w *simtest.World, pod simtest.Object) (time.Duration, bool) {
					d, ok := runs(w, pod)
					if migrates(pod) && imageOf(pod) == "app:2" {
						d = c.lasts
					}
					return d, ok
				}}
				s.Actors[2] = func(w *simtest.World, change simtest.Change) {
					if o := change.After; c.lasts > 0 || o == nil || !migrates(o) || imageOf(o) != "app:2" || o.Deleting() {
						kubelet.Act(w, change)
					}
				}
				done := false
				s.Actors = append(s.Actors, func(w *simtest.World, change simtest.Change) {
					o := change.After
					if o["kind"] == "Job" && endOf(o) != "" && endOf(change.Before) == "" {
						*ends = append(*ends, imageOf(o, "spec", "template")+" "+endOf(o))
					}
					starts := o["kind"] == "Pod" && migrates(o) && imageOf(o) == "app:2" && (c.lasts == 0 || o.Field("status", "phase") == "Running")
					if done || !starts || w.Object("deployments.apps", "blue", "shop") == nil { // it is the first image of the second world
						return
					}
					done = true
					w.After(2*time.Second, func() {
						if err := errors.Join(requires("meanwhile", "Provisioning Migrating app:1", told(w)), c.during(w)); err != nil {
							w.Blame("%v", err)
						}
					})
				})
				edits := slowly(creation("app:1"), release("app:2"))
				if c.again {
					edits = append(edits, release("app:2"))
				}
				return scripted(p, s, edits...)
			}, 1)
			require.Empty(t, r.Wrong)
			first := slices.IndexFunc(worlds, func(ends *[]string) bool { return len(*ends) > 0 })
			require.GreaterOrEqual(t, first, 0)
			require.Equal(t, c.want, *worlds[first])
		})
	}
}

// suspend suspends the Job of app:2, and has app:3 released later.
func suspend(w *simtest.World) error {
	name := ""
	for _, job := range w.Objects(jobsKind) {
		if imageOf(job, "spec", "template") == "app:2" {
			name = job.Name()
		}
	}
	w.Within(10*time.Second, "it is said", func(w *simtest.World) bool {
		said := app{w.Object(appsKind, "blue", "shop")}.condition("Ready")
		return said["message"] == "MigrationsReady: Job "+name+" is suspended"
	})
	w.After(20*time.Second, func() {
		if err := release("app:3")(w); err != nil {
			w.Blame("%v", err)
		}
	})
	return w.As("person").Update(jobsKind, "blue", name, func(o simtest.Object) { o.Set(true, "spec", "suspend") })
}

// deleteJobs deletes all Jobs and leaves their pods, as kubectl delete --cascade=orphan does.
func deleteJobs(w *simtest.World) error {
	var errs []error
	for _, pod := range w.Objects("pods") {
		if migrates(pod) {
			errs = append(errs, w.As("person").Update("pods", pod.Namespace(), pod.Name(), func(o simtest.Object) {
				o.Set([]any{}, "metadata", "ownerReferences")
			}))
		}
	}
	for _, job := range w.Objects(jobsKind) {
		errs = append(errs, w.As("person").Delete(jobsKind, job.Namespace(), job.Name()))
	}
	return errors.Join(errs...)
}

// TestWhatTheOldPodsReadStaysInASimulatedWorld: storage is turned off together with an image whose
// migrations fail. The pods of before need its ConfigMap to start again.
func TestWhatTheOldPodsReadStaysInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		off := func(o simtest.Object) { o.Set(false, "spec", "storage", "enabled") }
		rotate := func(o simtest.Object) { o.Set("1", "metadata", "annotations", v1alpha1.AnnotationRotate) }
		var before string
		password := func(w *simtest.World) string {
			return fmt.Sprint(w.Object("secrets", "blue", "shop-db").Field("data", "DB_PASSWORD"))
		}
		return scripted(p, s, slowly(
			creation("app:1"),
			func(w *simtest.World) error {
				before = password(w)
				return release(badImage, off, rotate)(w)
			},
			func(w *simtest.World) error {
				return errors.Join(
					requires("failed", "Failed MigrationFailed app:1", told(w)), requires("password", before, password(w)),
					requires("ConfigMap", true, w.Object("configmaps", "blue", "shop-storage") != nil), release("app:2", off, rotate)(w))
			},
			func(w *simtest.World) error {
				return errors.Join(
					requires("next", "Running Reconciled app:2", told(w)), requires("another password", false, before == password(w)),
					requires("ConfigMap", false, w.Object("configmaps", "blue", "shop-storage") != nil))
			},
		)...)
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestAnImageThatIsNoLongerWantedIsNotMigratedInASimulatedWorld: a user goes back to the image of
// before, after the pass has read the Application and before it makes the Job.
func TestAnImageThatIsNoLongerWantedIsNotMigratedInASimulatedWorld(t *testing.T) {
	t.Parallel()
	lists, created := 0, 0
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		released := false
		s.Actors = append(s.Actors, func(w *simtest.World, c simtest.Change) {
			if c.Before == nil && c.After["kind"] == "Job" && imageOf(c.After, "spec", "template") == "app:2" {
				created++
			}
		})
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			return p.start(ctx, net, carrier(func(r *http.Request) (*http.Response, error) {
				if released && strings.HasSuffix(r.URL.Path, "/namespaces/blue/pods") && strings.Contains(r.URL.RawQuery, "migrations") {
					released = false
					lists++
					if err := simtest.Call(r.Context(), net, "back", release("app:1")); err != nil {
						return nil, err
					}
				}
				return net.RoundTrip(r)
			}))
		}
		return scripted(p, s, slowly(
			creation("app:1"),
			func(w *simtest.World) error {
				released = true
				return release("app:2")(w)
			},
		)...)
	}, 1)
	require.Empty(t, r.Wrong)
	require.Positive(t, lists)
	require.Zero(t, created)
}

// TestAJobThatIsRefusedIsSaidInASimulatedWorld: the server refuses the Job of the migrations, as for a
// quota, and takes it later.
func TestAJobThatIsRefusedIsSaidInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		var first time.Time
		s.Admit = func(a *simtest.Admission) error {
			if first.IsZero() && a.Object["kind"] == "Job" {
				first = time.Now()
			}
			if a.Object["kind"] == "Job" && time.Since(first) < 40*time.Second {
				return errors.New("no room for a Job")
			}
			return nil
		}
		s = scripted(p, s, slowly(func(w *simtest.World) error {
			w.Within(10*time.Second, "it is said", func(w *simtest.World) bool {
				ready := app{w.Object(appsKind, "blue", "shop")}.condition("Ready")
				return ready["reason"] == "Invalid" && strings.Contains(fmt.Sprint(ready["message"]), "no room for a Job")
			})
			return creation("app:1")(w)
		})...)
		s.Settle = 10 * time.Minute
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestWhatIsDeletedWhileAnImageIsHeldComesBackInASimulatedWorld: the migrations of an image have failed,
// and a person deletes what leads to the pods of the image before it, sets another image, and deletes
// the Deployment.
func TestWhatIsDeletedWhileAnImageIsHeldComesBackInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		kinds := []string{"services", "networkpolicies.networking.k8s.io", "ingresses.networking.k8s.io", "horizontalpodautoscalers.autoscaling"}
		missing := func(w *simtest.World) (n int) {
			for _, kind := range kinds {
				n += count(w.Object(kind, "blue", "shop") == nil)
			}
			return n
		}
		const failed = "Failed MigrationFailed app:1"
		as := func(w *simtest.World) bool {
			d := w.Object("deployments.apps", "blue", "shop")
			return d != nil && imageOf(d, "spec", "template") == "app:1"
		}
		return scripted(p, s, slowly(creation("app:1"), release(badImage), func(w *simtest.World) error {
			errs := []error{requires("failed", failed, told(w))}
			for _, kind := range kinds {
				errs = append(errs, w.As("person").Delete(kind, "blue", "shop"))
			}
			w.Within(time.Minute, "all are there", func(w *simtest.World) bool { return missing(w) == 0 })
			return errors.Join(append(errs, requires("missing", len(kinds), missing(w)))...)
		}, func(w *simtest.World) error {
			w.Within(time.Minute, "the image is set back", as)
			return errors.Join(requires("still", failed, told(w)), w.As("person").Update("deployments.apps", "blue", "shop", setImage("app:9")))
		}, func(w *simtest.World) error {
			w.Within(time.Minute, "the Deployment is there again", as)
			return errors.Join(requires("as before", failed, told(w)), w.As("person").Delete("deployments.apps", "blue", "shop"))
		}, func(w *simtest.World) error { return requires("in the end", failed, told(w)) })...)
	}, 1)
	require.Empty(t, r.Wrong)
}

// setImage returns what sets the image of a Deployment.
func setImage(image string) func(simtest.Object) {
	return func(o simtest.Object) {
		containers, _ := o.Field("spec", "template", "spec", "containers").([]any)
		containers[0].(map[string]any)["image"] = image
	}
}
