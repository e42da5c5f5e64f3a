package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// sends notes how long after the instant each batch was sent.
type sends struct {
	store
	after []time.Duration
}

func (c *sends) Send(ctx context.Context, records []json.RawMessage) (snapshot.Receipt, error) {
	now := time.Now()
	c.after = append(c.after, now.Sub(now.Truncate(time.Minute)))
	return c.store.Send(ctx, records)
}

// TestManyRecordersSpreadTheirSendingAndNotTheirInstants runs 200 of them for ten minutes.
func TestManyRecordersSpreadTheirSendingAndNotTheirInstants(t *testing.T) {
	t.Parallel()
	for name, spooled := range map[string]bool{"without a spool": false, "with a spool": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dirs := make([]string, 200)
			for i := range dirs {
				dirs[i] = t.TempDir()
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute + time.Second)
				const recorders, minutes, spread = 200, 10, 20 * time.Second
				ctx, cancel := context.WithCancel(t.Context())
				sinks := make([]*sends, recorders)
				var group sync.WaitGroup
				for i := range sinks {
					c := &sends{}
					sinks[i] = c
					r := &snapshot.Recorder[row]{Collect: things("a", "b", "c"), Sink: c, Spread: spread, MaxRecords: 2}
					if spooled {
						r.Spool = &snapshot.Spool{Dir: dirs[i]}
					}
					group.Go(func() {
						if err := r.Start(ctx); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(minutes*time.Minute + 30*time.Second)
				cancel()
				group.Wait()
				perSecond := map[time.Duration]int{}
				for _, c := range sinks {
					require.Len(t, c.rows, 3*(minutes+1), "each instant, the one before the start too")
					for _, n := range c.rows {
						require.Equal(t, 1, n)
					}
					require.Len(t, c.batches, 2*(minutes+1))
					for _, after := range c.after {
						require.Less(t, after, spread)
					}
					require.Equal(t, c.after[2], c.after[len(c.after)-1], "a recorder keeps its part")
					perSecond[c.after[len(c.after)-1].Truncate(time.Second)]++
				}
				for second, n := range perSecond {
					require.Less(t, n, recorders/5, "at %v", second)
				}
				require.Greater(t, len(perSecond), 10)
			})
		})
	}
}

// TestAStopSendsWhatWaits stops a recorder between the instant and its sending.
func TestAStopSendsWhatWaits(t *testing.T) {
	t.Parallel()
	for name, sink := range map[string]*store{
		"the sink takes it":      {},
		"the sink is slow":       {delay: 4 * time.Second},
		"the sink does not take": {fail: errors.New("down")},
		"the sink hangs":         {delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
				var passes []snapshot.Pass
				// It draws a nanosecond at least, but for one time in ten billion.
				r := &snapshot.Recorder[row]{
					Collect: things("a"), Sink: sink, Spread: 20 * time.Second, OnPass: func(p snapshot.Pass) { passes = append(passes, p) },
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					if err := r.Start(ctx); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				require.Empty(t, sink.batches, "it waits")
				begin := time.Now()
				cancel()
				<-ended
				require.LessOrEqual(t, time.Since(begin), 5*time.Second)
				require.Len(t, passes, 1)
				taken := sink.fail == nil && sink.delay < time.Minute
				require.Equal(t, map[bool][2]int{true: {1, 0}, false: {0, 1}}[taken], [2]int{passes[0].Accepted, passes[0].Lost})
				require.Equal(t, taken, passes[0].Err == nil, "%v", passes[0].Err)
			})
		})
	}
}

// TestAPanicWhileRecordsWaitLosesNoneOfTheNextInstant has a collection that fails in its
// middle.
func TestAPanicWhileRecordsWaitLosesNoneOfTheNextInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
		sink, begin := &store{}, time.Now()
		collect := things("a", "b", "c")
		r := &snapshot.Recorder[row]{
			Sink:       sink,
			Spread:     20 * time.Second,
			MaxRecords: 2,
			Collect: func(ctx context.Context, at time.Time) (iter.Seq[row], error) {
				records, err := collect(ctx, at)
				return func(yield func(row) bool) {
					for record := range records {
						if at.Equal(begin) && time.Since(begin) < 3*time.Second && record.ID == "c" {
							panic("half way")
						}
						if !yield(record) {
							return
						}
					}
				}, err
			},
		}
		run(t, r, 90*time.Second)
		require.Len(t, sink.rows, 6, "both instants are whole")
	})
}
