package statesynctest_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

const lease = time.Hour

// memory returns the log in memory as the suite drives it.
func memory() statesynctest.Store {
	m := &statesync.Memory{}
	return statesynctest.Store{
		Log:      m,
		AddScope: func(_ context.Context, scope string) error { return m.AddScope(scope) },
		Commit:   func(_ context.Context, changes []statesync.Change) error { return m.Commit(changes...) },
		Begin: func(context.Context) (statesynctest.Tx, error) {
			return &memoryTx{memory: m}, nil
		},
		Readers: m,
		Lease:   lease,
		Prune: func(ctx context.Context, scope string) error {
			page, err := m.Read(ctx, scope, 0, 1)
			if err != nil {
				return err
			}
			readers, err := m.Readers(ctx, scope)
			if err != nil {
				return err
			}
			return m.Forget(scope, statesync.Horizon(page.Position, readers, time.Now(), lease))
		},
		NewEpoch: func(ctx context.Context, scope string) error {
			page, err := m.Read(ctx, scope, 0, 1<<20)
			if err != nil {
				return err
			}
			return m.Restore(scope, page.Items)
		},
	}
}

// memoryTx keeps its changes until it commits.
type memoryTx struct {
	memory  *statesync.Memory
	changes []statesync.Change
}

func (tx *memoryTx) Append(_ context.Context, changes ...statesync.Change) error {
	tx.changes = append(tx.changes, changes...)
	return nil
}
func (tx *memoryTx) Commit() error   { return tx.memory.Commit(tx.changes...) }
func (tx *memoryTx) Rollback() error { return nil }

func TestTheLogInMemoryConforms(t *testing.T) {
	t.Parallel()
	statesynctest.Run(t, func(*testing.T) statesynctest.Store { return memory() })
}
