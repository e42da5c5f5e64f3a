package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestTheOperatorMayBeKilledAnywhere kills it before and after each request to the API server, and
// each call to a service, while an Application is made, changed, and deleted.
func TestTheOperatorMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, lifeOfAnApplication, 1)
	c.Check(t, 97)
	fmt.Printf("figure sim_application_boundaries %d count\n", c.Boundaries)
}

// scripted is a world without faults in which these edits follow each other.
func scripted(p *platform, s simtest.Scenario, edits ...func(*simtest.World) error) simtest.Scenario {
	const apart = 35 * time.Second
	s.Edits, s.Pause, s.Settle, s.Rest = 1, time.Second, time.Duration(len(edits))*apart+time.Minute, time.Minute
	s.Disturbances, s.Without = []applytest.Disturbance{}, nil
	s.Edit = func(w *simtest.World) {
		for i, edit := range edits {
			w.After(time.Duration(i)*apart, func() {
				if err := edit(w); err != nil {
					w.Blame("edit %d: %v", i, err)
				}
			})
		}
	}
	s.Converged = p.converged
	return s
}

// withAll is an Application with everything that is made outside of the cluster.
func withAll(image string) map[string]any {
	return map[string]any{
		"repository": "github.com/team/app", "framework": "nextjs", "environment": "production", "imageRef": image,
		"scaling": map[string]any{"min": 1}, "auth": map[string]any{"enabled": true},
		"database": map[string]any{"enabled": true, "migrations": map[string]any{"engine": "knex"}},
		"storage":  map[string]any{"enabled": true, "buckets": []any{map[string]any{"name": "files", "public": true}}},
	}
}

// lifeOfAnApplication makes one with everything, turns its database and storage off and changes its image, and
// deletes it.
func lifeOfAnApplication() simtest.Scenario {
	p, s := newPlatform()
	return scripted(p, s,
		func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
		func(w *simtest.World) error {
			return w.Update(appsKind, "blue", "shop", func(o simtest.Object) {
				o["spec"] = withAll("app:2")
				o.Set(false, "spec", "database", "enabled")
				o.Set([]any{}, "spec", "storage", "buckets")
			})
		},
		func(w *simtest.World) error { return w.Delete(appsKind, "blue", "shop") },
	)
}

// TestADayAtRestInASimulatedWorld is C5: of two Applications of one name, one has everything, and the
// other is refused. None of the services, and no object, is written for a day, with a restart.
func TestADayAtRestInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		s = scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
			func(w *simtest.World) error { return w.Create(anApp("green", "shop", withAll("app:2"))) },
		)
		if s.Rest = 24 * time.Hour; testing.Short() {
			s.Rest = time.Hour
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestTwoTenantsInASimulatedWorld: they share a realm, one has its replicas from the autoscaler, its
// bucket becomes private, and it turns its database off while its pods run. The other one goes.
func TestTwoTenantsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		update := func(image string, change func(simtest.Object)) func(*simtest.World) error {
			return func(w *simtest.World) error {
				return w.Update(appsKind, "blue", "shop", func(o simtest.Object) {
					o["spec"] = withAll(image)
					o.Set([]any{"green"}, "spec", "auth", "sharedWith")
					change(o)
				})
			}
		}
		return scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
			func(w *simtest.World) error {
				spec := withAll("app:1")
				spec["environment"] = "staging"
				return errors.Join(w.Create(anApp("green", "shop", spec)), update("app:1", func(simtest.Object) {})(w))
			},
			func(w *simtest.World) error {
				return w.As("autoscaler").Update("deployments.apps", "blue", "shop", func(o simtest.Object) { o.Set(7.0, "spec", "replicas") })
			},
			update("app:2", func(o simtest.Object) { o.Set([]any{map[string]any{"name": "files"}}, "spec", "storage", "buckets") }),
			update("app:3", func(o simtest.Object) {
				o.Set([]any{map[string]any{"name": "files"}}, "spec", "storage", "buckets")
				o.Set(false, "spec", "database", "enabled")
			}),
			func(w *simtest.World) error { return w.Delete(appsKind, "green", "shop") },
		)
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestWhatABackupBringsBackIsNotTakenInASimulatedWorld restores the schema of an Application that
// was deleted: an Application of the same name, which is created later, does not take it.
func TestWhatABackupBringsBackIsNotTakenInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		const schema = "database prod_shop"
		var old thing
		return scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
			func(w *simtest.World) error {
				old = p.things[schema].copy()
				return w.Delete(appsKind, "blue", "shop")
			},
			func(w *simtest.World) error {
				if _, left := p.things[schema]; left {
					return errors.New("the schema was not removed")
				}
				p.things[schema], p.restored[schema] = old, old.mark
				return w.Create(anApp("blue", "shop", withAll("app:1")))
			},
		)
	}, 1)
	require.Empty(t, r.Wrong)
}

// carrier is a way to the API server.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// TestNoRecordOfAnEarlierLifeIsLostInASimulatedWorld: an earlier life has recorded and made a bucket
// that the spec does not name any more, and the view of the next one does not show the record yet.
func TestNoRecordOfAnEarlierLifeIsLostInASimulatedWorld(t *testing.T) {
	t.Parallel()
	for _, edits := range [][]func(*simtest.World) error{
		{func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) }},
		{
			func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
			func(w *simtest.World) error { return w.Delete(appsKind, "blue", "shop") },
		},
	} {
		r := simtest.Simulate(t, func() simtest.Scenario {
			p, s := newPlatform()
			late := true
			record := func(w *simtest.World) error {
				a := app{w.Object(appsKind, "blue", "shop")}
				if late = !a.Deleting() && len(edits) > 1; late {
					return nil
				}
				cluster := w.Object("namespaces", "", "kube-system").UID()
				mark := external.Mark{Cluster: cluster, Namespace: "blue", Name: "shop", UID: a.UID()}
				p.things[a.bucket("media")] = thing{mark.String(), map[string]string{}}
				return w.As("earlier life").Update(appsKind, "blue", "shop", func(o simtest.Object) {
					all, _ := o.Field("status", "external").([]any)
					o.Set(append(all, map[string]any{"kind": "Bucket", "id": "plattr-prod-shop-media", "policy": "Delete"}), "status", "external")
				})
			}
			s.Program = func(ctx context.Context, net http.RoundTripper) error {
				return p.start(ctx, net, carrier(func(r *http.Request) (*http.Response, error) {
					if late && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/applications/shop/status") {
						if err := simtest.Call(r.Context(), net, "earlier life", record); err != nil {
							return nil, err
						}
					}
					return net.RoundTrip(r)
				}))
			}
			return scripted(p, s, edits...)
		}, 1)
		require.Empty(t, r.Wrong)
	}
}

// TestARotationWaitsForTheDatabaseInASimulatedWorld: until it is back, the pods keep the password
// that the role has.
func TestARotationWaitsForTheDatabaseInASimulatedWorld(t *testing.T) {
	t.Parallel()
	waited := ""
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		s = scripted(p, s, append(slowly(creation("app:1")),
			func(w *simtest.World) error {
				p.stop(w, theDatabase, 20*time.Second)
				before := w.Object("secrets", "blue", "shop-db")
				w.After(15*time.Second, func() {
					a := app{w.Object(appsKind, "blue", "shop")}
					waited = fmt.Sprint(a.condition("DatabaseReady")["reason"], " ", a.condition("DeploymentReady")["reason"])
					if after := w.Object("secrets", "blue", "shop-db"); after.ResourceVersion() != before.ResourceVersion() {
						w.Blame("the Secret was written, and the database is away")
					}
				})
				return w.Update(appsKind, "blue", "shop", func(o simtest.Object) { o.Set("1", "metadata", "annotations", v1alpha1.AnnotationRotate) })
			},
		)...)
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, "Unreachable Reconciled", waited)
}

// TestWhatIsTurnedOffGoesWhereNoWorkloadRunsInASimulatedWorld: an Application whose database is of
// another has no workload that could use its bucket.
func TestWhatIsTurnedOffGoesWhereNoWorkloadRunsInASimulatedWorld(t *testing.T) {
	t.Parallel()
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		spec := withAll("app:1")
		spec["storage"] = map[string]any{"enabled": true, "buckets": []any{map[string]any{"name": "media"}}}
		s = scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "taken", spec)) },
			func(w *simtest.World) error {
				if _, made := p.things["storage plattr-prod-taken-media"]; !made {
					w.Blame("the bucket was not made")
				}
				return w.Update(appsKind, "blue", "taken", func(o simtest.Object) { o.Set(false, "spec", "storage", "enabled") })
			},
		)
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}

// TestADeletionEndsOnceItIsAllowedInASimulatedWorld: the account of the database has no right to
// remove a schema for a while. No event says that it has got it.
func TestADeletionEndsOnceItIsAllowedInASimulatedWorld(t *testing.T) {
	t.Parallel()
	waited := ""
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPlatform()
		return scripted(p, s,
			func(w *simtest.World) error { return w.Create(anApp("blue", "shop", withAll("app:1"))) },
			func(w *simtest.World) error {
				p.denies = func(service, what string) bool { return service == theDatabase && strings.HasPrefix(what, "remove ") }
				w.After(20*time.Second, func() {
					waited = fmt.Sprint(app{w.Object(appsKind, "blue", "shop")}.condition("Ready")["reason"])
					p.denies = nil
				})
				return w.Delete(appsKind, "blue", "shop")
			},
		)
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, "DeletionFailed", waited)
}
