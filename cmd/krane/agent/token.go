package agent

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// tokenInterval is the time between two looks at the token. A stream that was
// refused the old token is opened again within it and a second.
const tokenInterval = 2 * time.Second

// tokenWatcher ends the pauses of heartbeats and streams when the token is another.
type tokenWatcher struct {
	read    func(context.Context) (string, error)
	changed func()

	last string // never logged
}

// Reconcile implements reconcile.Reconciler. A token that cannot be read is the next
// call's error.
func (t *tokenWatcher) Reconcile(ctx context.Context) (reconcile.Result, error) {
	token, err := t.read(ctx)
	if err != nil || token == t.last {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	if t.last != "" {
		t.changed()
	}
	t.last = token
	return reconcile.Result{}, nil
}
