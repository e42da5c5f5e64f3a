package kube_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// leader is a replica that skips generations which it has dealt with, as long
// as it leads.
func leader(w *world, c *client, who string) (*kube.Lease, *passes) {
	controller, p := watching(w)
	controller.Workers = 2
	var mu sync.Mutex
	done := map[types.UID]int64{} // the generation that was dealt with
	plain := controller.Reconcile
	controller.Reconcile = func(ctx context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		mu.Lock()
		handled := o != nil && done[o.UID] >= o.Generation
		mu.Unlock()
		if o == nil || handled {
			return reconcile.Result{}, nil
		}
		result, err := plain(ctx, key, o)
		if key.Name == "slow" {
			<-ctx.Done()
			p.note("slow cancelled")
			return result, ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		done[o.UID] = o.Generation
		return result, err
	}
	return &kube.Lease{
		Client: c, Namespace: "shop", Name: "boss", Identity: who,
		Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			clear(done)
			return controller.Start(ctx)
		}),
	}, p
}

func TestLosingTheLeaseCancelsThePassesAndTakingItReplaysAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(), newServer()
		for _, name := range []string{"a", "b"} {
			w.put(widgets, newWidget(name, 1))
		}
		first := s.client()
		a, pa := leader(w, first, "a")
		b, pb := leader(w, s.client(), "b")
		stopA := start(t, a)
		synctest.Wait()
		require.Equal(t, "a 1, b 1", pa.take())
		stopB := start(t, b)
		w.change(widgets, keyOf("shop", "a"), label)
		time.Sleep(time.Minute)
		require.Empty(t, pa.take(), "the generation was dealt with")
		require.Empty(t, pb.take(), "b does not lead")

		w.put(widgets, newWidget("slow", 1))
		synctest.Wait()
		require.Equal(t, "slow 1", pa.take())
		first.breaks(func(c *client) { c.down = true })
		time.Sleep(time.Minute)
		require.Equal(t, "slow cancelled", pa.take())
		require.Equal(t, "a 1, b 1, slow 1", pb.take(), "everything is replayed")

		first.breaks(func(c *client) { c.down = false })
		require.NoError(t, stopB())
		time.Sleep(time.Minute)
		require.Equal(t, "slow cancelled", pb.take())
		require.Equal(t, "a 1, b 1, slow 1", pa.take(), "and again by the one that had dealt with it before")
		require.NoError(t, stopA())
	})
}
