package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// minutes runs agents on one store of two hours, and counts what is missing of the
// minutes of 100 things, and what is stored twice.
type minutes struct {
	store store
	names []string
	group sync.WaitGroup
	spool int64 // the largest size of one
	lost  int
	mu    sync.Mutex
}

// agent runs from one time to another.
func (m *minutes) agent(ctx context.Context, spool *snapshot.Spool, from, to time.Duration, begin time.Time) {
	m.group.Go(func() {
		time.Sleep(time.Until(begin.Add(from)))
		ctx, cancel := context.WithDeadline(ctx, begin.Add(to))
		defer cancel()
		r := &snapshot.Recorder[row]{Sink: &m.store, Spool: spool, Collect: func(_ context.Context, at time.Time) (iter.Seq[row], error) {
			return func(yield func(row) bool) {
				for _, name := range m.names {
					instant := at.Format(time.RFC3339)
					if !yield(row{snapshot.ID(name, instant), instant}) {
						return
					}
				}
			}, nil
		}, OnPass: func(p snapshot.Pass) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.spool = max(m.spool, p.SpoolBytes)
			m.lost += p.Lost
		}}
		if err := r.Start(ctx); err != nil {
			m.store.set(err)
		}
	})
}

func newMinutes() *minutes {
	m := &minutes{}
	for n := range 100 {
		m.names = append(m.names, fmt.Sprintf("thing-%02d", n))
	}
	return m
}

// count returns how many of the minutes from begin on are missing, and how many have
// more than one identity for a thing.
func (m *minutes) count(begin time.Time, of int) (missing, twice int) {
	for n := range of {
		instant := begin.Add(time.Duration(n) * time.Minute).Format(time.RFC3339)
		for _, name := range m.names {
			if m.store.rows[snapshot.ID(name, instant)+" "+instant] == 0 {
				missing++
			}
		}
	}
	return missing, max(0, len(m.store.rows)-of*len(m.names))
}

func figure(t *testing.T, name string, value int) {
	t.Helper()
	fmt.Printf("figure %s %d records\n", name, value)
	require.Zero(t, value, name)
}

// TestTwoAgentsAndARestartRecordEachMinuteOnce has two agents overlap for ten minutes,
// each with its own phase, and one restarted in the middle of minutes.
func TestTwoAgentsAndARestartRecordEachMinuteOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UTC().Truncate(time.Minute).Add(time.Hour)
		m := newMinutes()
		m.agent(t.Context(), nil, 10*time.Second, 10*time.Minute+30*time.Second, begin)
		m.agent(t.Context(), nil, 5*time.Minute+47*time.Second, 15*time.Minute+59*time.Second, begin)
		m.agent(t.Context(), nil, 16*time.Minute+21*time.Second, 20*time.Minute+59*time.Second, begin) // the minute began without it
		m.group.Wait()
		missing, twice := m.count(begin, 21)
		figure(t, "snapshot_missing", missing)
		figure(t, "snapshot_twice", twice)
		require.NoError(t, m.store.fail)
	})
}

// TestAnOutageOfAnHourLosesNothing takes the store away for an hour, and restarts the
// agent in it.
func TestAnOutageOfAnHourLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().UTC().Truncate(time.Minute).Add(time.Hour)
		m := newMinutes()
		spool := &snapshot.Spool{Dir: t.TempDir(), MaxBytes: 2 << 20}
		m.agent(t.Context(), spool, 0, 30*time.Minute+40*time.Second, begin)
		m.agent(t.Context(), spool, 31*time.Minute+10*time.Second, 90*time.Minute+30*time.Second, begin)
		time.AfterFunc(time.Until(begin.Add(10*time.Minute+5*time.Second)), func() { m.store.set(errors.New("away")) })
		time.AfterFunc(time.Until(begin.Add(70*time.Minute+5*time.Second)), func() { m.store.set(nil) })
		m.group.Wait()
		missing, twice := m.count(begin, 91)
		figure(t, "snapshot_lost_in_outage", missing+m.lost)
		require.Zero(t, twice)
		require.Positive(t, m.spool)
		require.LessOrEqual(t, m.spool, spool.MaxBytes)
	})
}
