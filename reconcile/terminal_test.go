package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func TestTerminalKeepsTheErrorItMarks(t *testing.T) {
	cause := &fs.PathError{Op: "open", Path: "spec", Err: errBoom}
	err := fmt.Errorf("pod: %w", reconcile.Terminal(cause))
	same(t, "text", err.Error(), "pod: open spec: boom")
	same(t, "is terminal", errors.Is(err, reconcile.ErrTerminal), true)
	same(t, "is the cause", errors.Is(err, errBoom), true)
	if found, ok := errors.AsType[*fs.PathError](err); !ok || found != cause {
		t.Errorf("the marked error is not found in the chain")
	}
}

func TestTerminalOfNilIsNil(t *testing.T) {
	same(t, "Terminal(nil)", reconcile.Terminal(nil), nil)
	same(t, "other errors are terminal", errors.Is(errBoom, reconcile.ErrTerminal), false)
}

// none is an error that has several parts, namely no part.
type none struct{}

func (none) Error() string   { return "none" }
func (none) Unwrap() []error { return nil }

func TestAnErrorIsRetriedUnlessAllItsPartsAreTerminal(t *testing.T) {
	terminal := reconcile.Terminal(errBoom)
	for _, row := range []struct {
		name string
		err  error
		want int
	}{
		{"plain", errBoom, 3},
		{"terminal", terminal, 1},
		{"wrapped terminal", fmt.Errorf("pod: %w", terminal), 1},
		{"terminal around plain ones", reconcile.Terminal(errors.Join(errBoom, errBoom)), 1},
		{"all joined are terminal", errors.Join(terminal, terminal), 1},
		{"no parts", none{}, 3},
		{"one joined is not terminal", errors.Join(terminal, errBoom), 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			calls := 0
			_ = reconcile.Backoff{Min: 1, Max: 1, Retries: 2}.Retry(t.Context(), func(context.Context) error {
				calls++
				return row.err
			})
			same(t, "calls", calls, row.want)
		})
	}
}
