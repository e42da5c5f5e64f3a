package agent //nolint:testpackage // passes are made one by one, in virtual time

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// logs has the converger log into what is returned.
func (p *passes) logs() *logtest.Log {
	log := &logtest.Log{}
	p.logger = slog.New(slog.NewTextHandler(log, nil))
	return log
}

// denies makes the API server refuse a verb on the objects with that in their names, each time.
func (p *passes) denies(verb, resource, name string) {
	p.server.PrependReactor(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		at, ok := action.(interface{ GetName() string })
		return ok && strings.Contains(at.GetName(), name), nil, errors.New("an admission webhook says no")
	})
}

// release ends the Deployments with that in their names, whatever finalizers they have.
func (p *passes) release(name string) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	list, err := p.server.Resource(deployments).List(p.t.Context(), metav1.ListOptions{})
	require.NoError(p.t, err)
	for _, o := range list.Items {
		if strings.Contains(o.Name, name) {
			require.NoError(p.t, p.server.Tracker().Delete(deployments, o.Namespace, o.Name))
		}
	}
	synctest.Wait()
}

func (p *passes) failedPasses() float64 {
	var m dto.Metric
	require.NoError(p.t, p.metrics.reconcileError.Write(&m))
	return m.GetCounter().GetValue()
}

// TestADeletionThatFailsIsReportedOfItsService, in a report that has all services: it was tried.
func TestADeletionThatFailsIsReportedOfItsService(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"deployments", "services"} { // on which others wait, and on which none does
		synctest.Test(t, func(t *testing.T) {
			p := newPasses(t)
			log := p.logs()
			p.accept(p.state(1, "web", "api"))
			p.pass()
			p.denies("delete", resource, "api")
			p.accept(p.tombstone(2))
			for range 5 {
				_ = p.fails()
				p.desired.confirm()
			}
			require.Equal(t, "DeleteFailed", p.of(1).ErrorClass, resource)
			require.Contains(t, p.of(1).Message, "an admission webhook says no")
			require.True(t, p.told().Complete)
			require.EqualValues(t, 5, p.failedPasses())
			require.EqualValues(t, 1, p.generationApplied())
			require.Equal(t, 1, strings.Count(log.String(), "an admission webhook says no"), "once, however often it is tried")
		})
	}
}

// TestAGenerationIsAppliedOnceAllOfItIs, and a pass that fails is counted.
func TestAGenerationIsAppliedOnceAllOfItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.denies("patch", "deployments", "api")
		p.accept(p.state(1, "web", "api"))
		_ = p.fails()
		require.Zero(t, p.generationApplied())
		require.EqualValues(t, 1, p.failedPasses())
		p.accept(p.state(2, "web"))
		p.pass()
		require.EqualValues(t, 2, p.generationApplied())
		require.EqualValues(t, 1, p.failedPasses())
	})
}

// TestAPassThatIsCutShortReportsNothing: it has not seen all objects.
func TestAPassThatIsCutShortReportsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web", "api"))
		p.pass()
		p.accept(p.tombstone(2))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Reconcile(ctx)
		require.Error(t, err)
		require.EqualValues(t, 1, p.told().Generation)
		p.desired.confirm()
		p.pass()
		require.EqualValues(t, 2, p.told().Generation)
	})
}

func TestAFailureBesideWhatIsHeldStaysOne(t *testing.T) {
	t.Parallel()
	failure := errors.New("denied")
	limited, others := held(errors.Join(fmt.Errorf("prune: %w", &apply.LimitError{}), failure))
	require.Len(t, limited, 1)
	require.ErrorIs(t, others, failure)
	require.NotErrorIs(t, others, limited[0])
	limited, others = held(&apply.LimitError{})
	require.Len(t, limited, 1)
	require.NoError(t, others)
	limited, others = held(failure)
	require.Empty(t, limited)
	require.ErrorIs(t, others, failure)
}

// TestDeletionsThatAreNamedHaveALimit, too: twenty of thirty are deleted, and of one more none.
func TestDeletionsThatAreNamedHaveALimit(t *testing.T) {
	t.Parallel()
	for named, left := range map[int]int{20: 10, 21: 30} {
		synctest.Test(t, func(t *testing.T) {
			p := newPasses(t)
			all := make([]string, 30)
			for n := range all {
				all[n] = fmt.Sprint("s", n)
			}
			p.accept(p.state(1, all...))
			p.pass()
			gone := p.state(2, all...)
			for n := range named {
				gone.Services[n].Deleted = true
			}
			p.accept(gone)
			p.pass()
			require.Equal(t, left, p.count("deployments"))
			require.Equal(t, left == len(all), p.told().HeldDeletions != nil)
		})
	}
}

// TestWhatOnlyHasTheLabelsIsLeftAndReported: a person may have copied them.
func TestWhatOnlyHasTheLabelsIsLeftAndReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.pass()
		before := p.count("configmaps")
		p.labelled(labelServiceID, hex32(shop.ServiceID), map[string]string{
			labelProjectID: hex32(shop.ProjectID), labelEnvironment: shop.Environment,
		})
		p.passUntil(time.Now().Add(5 * time.Minute))
		require.Equal(t, before+1, p.count("configmaps"))
		require.EqualValues(t, 1, p.heldBy("unproven"))
		report := p.told()
		require.True(t, report.Complete)
		require.Len(t, report.Services, 2)
		require.Contains(t, report.Services[0].Message, "nothing shows that the agent applied them")
	})
}

// TestAnEnvironmentIsNotAnother: a tombstone is of one service in one environment.
func TestAnEnvironmentIsNotAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		both := func(generation int64) *starbase.DesiredState {
			s := p.state(generation, "web", "web")
			s.Services[1].ServiceID, s.Services[1].Environment = s.Services[0].ServiceID, "staging"
			return s
		}
		p.accept(both(1))
		p.pass()
		require.Equal(t, 2, p.count("deployments"))
		gone := both(2)
		gone.Services[0].Deleted = true
		gone.Services = gone.Services[:1]
		p.accept(gone)
		p.pass()
		require.Equal(t, 1, p.count("deployments"), "the other has its grace")
		gone = both(3)
		gone.Services[1].Deleted = true
		gone.Services = gone.Services[1:]
		p.accept(gone)
		p.pass()
		require.Zero(t, p.count("deployments"))
	})
}

// TestNothingIsCompleteWhileWhatIsHeldCannotBeSeen, also between the answers of Starbase.
func TestNothingIsCompleteWhileWhatIsHeldCannotBeSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.guard = newGuard(0, nil)
		p.accept(p.state(1, "a", "b", "c", "d", "e", "f", "g"))
		p.pass()
		p.accept(p.state(2))
		p.passUntil(time.Now().Add(70 * time.Second))
		require.True(t, p.told().Complete)
		p.away(true)
		time.Sleep(time.Minute)
		_ = p.fails()
		require.False(t, p.told().Complete)
	})
}

// TestTheTimeThatAnObjectDoesNotGoBeginsAgain with each deletion.
func TestTheTimeThatAnObjectDoesNotGoBeginsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.finalize("deployments")
		for generation := int64(1); generation < 4; generation += 2 {
			p.accept(p.state(generation, "web", "api"))
			p.pass()
			p.accept(p.tombstone(generation + 1))
			p.pass()
			p.desired.confirm()
			p.pass()
			require.Equal(t, "1 object is not deleted yet", p.of(1).Message)
			p.passUntil(time.Now().Add(slowDeletion + 4*time.Second))
			require.Contains(t, p.of(1).Message, "1 object is not gone yet")
			p.release("api")
			p.desired.confirm()
			p.pass()
			p.desired.confirm()
			p.pass()
			require.Nil(t, p.of(1))
		}
	})
}
