package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// row is one record of a test.
type row struct {
	ID string `json:"id"`
	At string `json:"at"`
}

// store keeps each identity once. It fails while fail is set, and takes delay.
type store struct {
	mu      sync.Mutex
	rows    map[string]int // id -> times it was sent
	batches []int
	fail    error
	delay   time.Duration
	answer  func(records int) snapshot.Receipt
}

func (s *store) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *store) Send(ctx context.Context, records []json.RawMessage) (snapshot.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return snapshot.Receipt{}, ctx.Err()
		}
	}
	s.batches = append(s.batches, len(records))
	if s.fail != nil {
		return snapshot.Receipt{}, s.fail
	}
	if s.answer != nil {
		return s.answer(len(records)), nil
	}
	if s.rows == nil {
		s.rows = map[string]int{}
	}
	receipt := snapshot.Receipt{}
	for _, record := range records {
		var r row
		if err := json.Unmarshal(record, &r); err != nil {
			return receipt, err
		}
		if s.rows[r.ID+" "+r.At]++; s.rows[r.ID+" "+r.At] > 1 {
			receipt.Duplicates++
		} else {
			receipt.Accepted++
		}
	}
	return receipt, nil
}

// things yields a row for each name, at each instant.
func things(names ...string) func(context.Context, time.Time) (iter.Seq[row], error) {
	return func(_ context.Context, at time.Time) (iter.Seq[row], error) {
		return func(yield func(row) bool) {
			for _, name := range names {
				if !yield(row{name, at.Format("15:04:05")}) {
					return
				}
			}
		}, nil
	}
}

// run starts a recorder for a while, and returns its passes.
func run[R any](t *testing.T, r *snapshot.Recorder[R], during time.Duration) []snapshot.Pass {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var passes []snapshot.Pass
	r.OnPass = func(p snapshot.Pass) { passes = append(passes, p) }
	require.NoError(t, r.Start(ctx))
	return passes
}

// sleepUntil makes it that long after noon, in virtual time.
func sleepUntil(t *testing.T, past time.Duration) {
	t.Helper()
	time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(36*time.Hour + past)))
}

func instants(passes []snapshot.Pass) []string {
	var list []string
	for _, p := range passes {
		list = append(list, p.At.Format("15:04:05"))
	}
	return list
}

// equal compares passes, errors by whether there is one.
func equal(t *testing.T, want, got snapshot.Pass) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreUnexported(snapshot.Pass{}), cmpopts.IgnoreFields(snapshot.Pass{}, "Err", "At")))
}

func TestInstantsAreMultiplesOfThePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{}
		var at []string
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: func(ctx context.Context, instant time.Time) (iter.Seq[row], error) {
			at = append(at, time.Now().UTC().Format("15:04:05"))
			require.Equal(t, time.UTC, instant.Location())
			return things("a", "b")(ctx, instant)
		}}, 3*time.Minute)
		require.Equal(t, []string{"12:00:20", "12:01:00", "12:02:00", "12:03:00"}, at, "at once, then without jitter")
		require.Equal(t, []string{"12:00:00", "12:01:00", "12:02:00", "12:03:00"}, instants(passes))
		for _, p := range passes {
			equal(t, snapshot.Pass{Collected: 2, Accepted: 2}, p)
			require.NoError(t, p.Err)
		}
		require.Len(t, s.rows, 8)
	})
}

func TestTheSameInstantIsADuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{}
		r := &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b")}
		run(t, r, 10*time.Second)
		passes := run(t, r, 10*time.Second)
		equal(t, snapshot.Pass{Collected: 2, Duplicates: 2}, passes[0])
	})
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{}
		names := make([]string, 25)
		for i := range names {
			names[i] = fmt.Sprintf("thing-%02d", i)
		}
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things(names...), MaxRecords: 10}, time.Second)
		require.Equal(t, []int{10, 10, 5}, s.batches)
		equal(t, snapshot.Pass{Collected: 25, Accepted: 25}, passes[0])

		s = &store{}
		size := len(`{"id":"thing-00","at":"12:00:00"},`)
		names[7] = strings.Repeat("x", 200)
		passes = run(t, &snapshot.Recorder[row]{Sink: s, Collect: things(names...), MaxBytes: 4*size + 1}, time.Second)
		require.Equal(t, []int{4, 4, 4, 4, 4, 4}, s.batches)
		require.Equal(t, 24, passes[0].Accepted)
		require.Equal(t, 1, passes[0].Rejected, "what is too large for a batch")
		require.ErrorContains(t, errors.New(passes[0].Rejections[0].Reason), "bytes, a batch takes")
		for _, name := range slices.Delete(names, 7, 8) {
			require.Equal(t, 1, s.rows[name+" 12:00:00"], name)
		}
	})
}

func TestWithoutASpoolAFailedBatchIsLostAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{fail: errors.New("away")}
		time.AfterFunc(90*time.Second, func() { s.set(nil) })
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b", "c"), MaxRecords: 2}, 3*time.Minute)
		equal(t, snapshot.Pass{Collected: 3, Lost: 3}, passes[0])
		equal(t, snapshot.Pass{Collected: 3, Lost: 3}, passes[1])
		require.ErrorContains(t, passes[0].Err, "away")
		equal(t, snapshot.Pass{Collected: 3, Accepted: 3}, passes[2])
		require.Len(t, s.rows, 6)
		require.Equal(t, []int{2, 1}, s.batches[:2], "one batch that fails does not hold back the next")
	})
}

func TestASpoolDeliversAfterAnOutageOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{fail: errors.New("away")}
		time.AfterFunc(10*time.Minute, func() { s.set(nil) })
		r := &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b"), Spool: &snapshot.Spool{Dir: t.TempDir()}}
		passes := run(t, r, 5*time.Minute)
		require.Len(t, passes, 6)
		for n, p := range passes {
			require.Equal(t, 2*(n+1), p.Spooled)
			require.Zero(t, p.Lost)
			require.Positive(t, p.SpoolBytes)
		}
		passes = run(t, r, 6*time.Minute) // another process
		last := passes[len(passes)-1]
		require.Equal(t, "12:11:00", last.At.Format("15:04:05"))
		require.Equal(t, 24, last.Accepted, "all of them at once")
		require.Equal(t, 2, last.Duplicates, "the instant at which the process was restarted")
		require.Zero(t, last.Spooled)
		require.Zero(t, last.SpoolBytes)
		require.Len(t, s.rows, 24)
	})
}

func TestARefusedBatchIsGivenUpAndHoldsNothingBack(t *testing.T) {
	t.Parallel()
	for _, spool := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sleepUntil(t, 20*time.Second)
			s := &store{fail: fmt.Errorf("%w: 400", snapshot.ErrRefused)}
			r := &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b")}
			if spool {
				r.Spool = &snapshot.Spool{Dir: t.TempDir()}
			}
			time.AfterFunc(time.Minute, func() { s.set(nil) })
			passes := run(t, r, 2*time.Minute)
			equal(t, snapshot.Pass{Collected: 2, Rejected: 2}, passes[0])
			require.ErrorIs(t, passes[0].Err, snapshot.ErrRefused)
			equal(t, snapshot.Pass{Collected: 2, Accepted: 2}, passes[2])
		})
	}
}

// onlyFirst refuses the batch that begins with a record.
type onlyFirst struct {
	store
	refused string
}

func (s *onlyFirst) Send(ctx context.Context, records []json.RawMessage) (snapshot.Receipt, error) {
	if strings.Contains(string(records[0]), s.refused) {
		return snapshot.Receipt{}, snapshot.ErrRefused
	}
	return s.store.Send(ctx, records)
}

func TestARefusedBatchDoesNotEndThePass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &onlyFirst{refused: `"a"`}
		passes := run(
			t,
			&snapshot.Recorder[row]{Sink: s, Collect: things("a", "b"), MaxRecords: 1, Spool: &snapshot.Spool{Dir: t.TempDir()}},
			time.Second,
		)
		equal(t, snapshot.Pass{Collected: 2, Accepted: 1, Rejected: 1}, passes[0])
	})
}

func TestAStartNearTheEndOfAPeriodHasHalfAPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 59*time.Second)
		passes := run(t, &snapshot.Recorder[row]{Sink: &store{delay: 20 * time.Second}, Collect: things("a")}, time.Minute)
		require.Equal(t, []string{"12:00:00", "12:01:00"}, instants(passes))
		for _, p := range passes {
			require.Equal(t, 1, p.Accepted)
		}
	})
}

func TestARejectedRecordIsReportedAndTheOthersAreDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		rejections := []snapshot.Rejection{{ID: "b", Reason: "no workspace"}}
		s := &store{answer: func(n int) snapshot.Receipt { return snapshot.Receipt{Accepted: n - 1, Rejected: rejections} }}
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b", "c"), Spool: &snapshot.Spool{Dir: t.TempDir()}}, time.Second)
		equal(t, snapshot.Pass{Collected: 3, Accepted: 2, Rejected: 1, Rejections: rejections}, passes[0])
		require.NoError(t, passes[0].Err)
	})
}

func TestRejectionsAreCountedAndNotAllKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{answer: func(n int) snapshot.Receipt { return snapshot.Receipt{Rejected: make([]snapshot.Rejection, n)} }}
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things(make([]string, 250)...), MaxRecords: 70}, time.Second)
		require.Equal(t, 250, passes[0].Rejected)
		require.Len(t, passes[0].Rejections, 100)
	})
}

func TestARecordThatCannotBeEncodedIsRejectedAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{answer: func(n int) snapshot.Receipt { return snapshot.Receipt{Accepted: n} }}
		passes := run(t, &snapshot.Recorder[float64]{Sink: s, Collect: func(context.Context, time.Time) (iter.Seq[float64], error) {
			return slices.Values([]float64{1, math.NaN(), 3}), nil
		}}, time.Second)
		require.Equal(t, 2, passes[0].Accepted)
		require.Equal(t, 1, passes[0].Rejected)
		require.Contains(t, passes[0].Rejections[0].Reason, "NaN")
	})
}

func TestAnAnswerThatDoesNotAccountForTheBatchIsAFailure(t *testing.T) {
	t.Parallel()
	for _, answer := range []snapshot.Receipt{{}, {Accepted: 3}, {Accepted: 1}, {Accepted: 3, Duplicates: -1}, {Accepted: -1, Duplicates: 3}} {
		synctest.Test(t, func(t *testing.T) {
			sleepUntil(t, 20*time.Second)
			s := &store{answer: func(int) snapshot.Receipt { return answer }}
			passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b"), Spool: &snapshot.Spool{Dir: t.TempDir()}}, time.Second)
			require.ErrorContains(t, passes[0].Err, "accounts for")
			require.Equal(t, 2, passes[0].Spooled, "%+v", answer)
			require.Zero(t, passes[0].Accepted)
		})
	}
}

// view is a Source whose last proof is at a time.
type view struct {
	mu sync.Mutex
	at time.Time
}

func (v *view) Seen() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at
}

func (v *view) event() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = time.Now()
}

func TestAStaleViewRecordsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		v, s := &view{}, &store{}
		v.event() // 12:00:20; dead from then on
		time.AfterFunc(5*time.Minute+10*time.Second, v.event)
		passes := run(t, &snapshot.Recorder[row]{Source: v, Sink: s, Collect: things("a")}, 6*time.Minute)
		require.Equal(
			t,
			[]string{"12:00:00", "12:01:00", "12:02:00", "12:03:00", "12:04:00", "12:05:00", "12:05:00", "12:06:00"},
			instants(passes),
		)
		for n, p := range passes {
			stale := errors.Is(p.Err, snapshot.ErrStale)
			require.Equal(t, n >= 3 && n <= 5, stale, "%v: two periods are over at 12:02:20", p.At)
			require.Equal(t, !stale, p.Collected == 1)
			require.Zero(t, p.Missed)
		}
		require.Len(t, s.rows, 5)
	})
}

func TestAnInstantIsTriedAgainUntilTheViewIsComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		v, s := &view{}, &store{}
		time.AfterFunc(5500*time.Millisecond, v.event)
		var at []string
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		passes := run(
			t,
			&snapshot.Recorder[row]{
				Source: v,
				Sink:   s,
				Logger: logger,
				Spread: time.Second,
				Collect: func(ctx context.Context, instant time.Time) (iter.Seq[row], error) {
					at = append(at, time.Now().UTC().Format("15:04:05"))
					return things("a")(ctx, instant)
				},
			},
			30*time.Second,
		)
		require.Equal(t, []string{"12:00:26"}, at)
		require.Len(t, passes, 2)
		require.ErrorIs(t, passes[0].Err, snapshot.ErrStale)
		require.EqualError(t, passes[0].Err, "view is not current: it has not been complete yet")
		require.Equal(t, 1, passes[1].Accepted)
		require.Empty(t, log.String(), "a start is no fault")

		never := &snapshot.Recorder[row]{Source: &view{}, Sink: s, Logger: logger, Collect: things("a")}
		run(t, never, time.Minute)
		require.Equal(t, 1, strings.Count(log.String(), "snapshot incomplete"), "the next instant is one")
	})
}

func TestASpoolIsDeliveredWhileTheViewIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		v, s := &view{}, &store{fail: errors.New("away")}
		v.event()
		time.AfterFunc(3*time.Minute, func() { s.set(nil) })
		run(t, &snapshot.Recorder[row]{Source: v, Sink: s, Collect: things("a"), Spool: &snapshot.Spool{Dir: t.TempDir()}}, 4*time.Minute)
		require.Len(t, s.rows, 3)
	})
}

func TestAFailedOrPanickingCollectIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s, calls := &store{}, 0
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: func(ctx context.Context, at time.Time) (iter.Seq[row], error) {
			switch calls++; calls {
			case 1:
				return nil, errors.New("not now")
			case 2:
				return func(yield func(row) bool) {
					yield(row{"half", "x"})
					panic("oops")
				}, nil
			case 3:
				panic("again")
			}
			return things("a")(ctx, at)
		}}, 30*time.Second)
		require.Len(t, passes, 2)
		require.ErrorContains(t, passes[0].Err, "collect: not now")
		require.Equal(t, map[string]int{"a 12:00:00": 1}, s.rows)
	})
}

func TestAPanicOfTheSinkOrOfOnPassIsContained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{answer: func(int) snapshot.Receipt { panic("sink") }}
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a"), Spool: &snapshot.Spool{Dir: t.TempDir()}}, time.Second)
		require.ErrorContains(t, passes[0].Err, "panic: sink")
		require.Equal(t, 1, passes[0].Spooled)

		n := 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, (&snapshot.Recorder[row]{Sink: &store{}, Collect: things("a"), OnPass: func(snapshot.Pass) {
			n++
			panic("observer")
		}}).Start(ctx))
		require.Equal(t, 4, n)
	})
}

func TestPassesNeverOverlapAndASlowSinkDelaysNoInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		s := &store{delay: 25 * time.Second}
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a", "b", "c", "d"), MaxRecords: 1}, 3*time.Minute)
		require.Equal(t, []string{"12:00:00", "12:01:00", "12:02:00", "12:03:00"}, instants(passes))
		for _, p := range passes[1:3] {
			equal(t, snapshot.Pass{Collected: 4, Accepted: 2, Lost: 2}, p)
			require.ErrorIs(t, p.Err, context.DeadlineExceeded)
		}
	})
}

func TestAnInstantThatWasMissedIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		n := 0
		passes := run(t, &snapshot.Recorder[row]{Sink: &store{}, Collect: func(ctx context.Context, at time.Time) (iter.Seq[row], error) {
			if n++; n == 2 {
				time.Sleep(150 * time.Second) // it does not heed its ctx
			}
			return things("a")(ctx, at)
		}}, 5*time.Minute)
		require.Equal(t, []string{"12:00:00", "12:01:00", "12:03:00", "12:04:00", "12:05:00"}, instants(passes))
		require.Equal(t, 1, passes[2].Missed)
		require.Zero(t, passes[1].Missed+passes[3].Missed)
	})
}

func TestASpoolThatCannotBeUsedIsReportedAndDeliveredWithout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, 20*time.Second)
		dir := filepath.Join(t.TempDir(), "spool")
		held := open(t, &snapshot.Spool{Dir: dir})
		s := &store{}
		time.AfterFunc(90*time.Second, func() {
			require.NoError(t, held.Close())
			s.set(errors.New("away"))
		})
		passes := run(t, &snapshot.Recorder[row]{Sink: s, Collect: things("a"), Spool: &snapshot.Spool{Dir: dir}}, 2*time.Minute)
		require.ErrorIs(t, passes[0].Err, snapshot.ErrSpoolLocked)
		require.Equal(t, 1, passes[0].Accepted)
		require.NotErrorIs(t, passes[2].Err, snapshot.ErrSpoolLocked)
		require.Equal(t, 1, passes[2].Spooled, "it is taken over when it is free")
	})
}

func TestStartNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	good := func() *snapshot.Recorder[row] { return &snapshot.Recorder[row]{Sink: &store{}, Collect: things()} }
	for want, change := range map[string]func(*snapshot.Recorder[row]){
		"Recorder.Collect: is required":                                                  func(r *snapshot.Recorder[row]) { r.Collect = nil },
		"Recorder.Sink: is required":                                                     func(r *snapshot.Recorder[row]) { r.Sink = nil },
		"Recorder.Period: is -1s, must be 0":                                             func(r *snapshot.Recorder[row]) { r.Period = -time.Second },
		"Recorder.Spread: is -1ns, must be 0 or more":                                    func(r *snapshot.Recorder[row]) { r.Spread = -1 },
		"Recorder.Spread: is 30s, must be 0 or more, and less than half of Period, 1m0s": func(r *snapshot.Recorder[row]) { r.Spread = 30 * time.Second },
		"Recorder.MaxRecords: is -1, must be 0":                                          func(r *snapshot.Recorder[row]) { r.MaxRecords = -1 },
		"Recorder.MaxBytes: is -1, must be 0":                                            func(r *snapshot.Recorder[row]) { r.MaxBytes = -1 },
		"Spool.Dir: is required":                                                         func(r *snapshot.Recorder[row]) { r.Spool = &snapshot.Spool{} },
		"Spool.MaxBytes: is 1, must be 0":                                                func(r *snapshot.Recorder[row]) { r.Spool = &snapshot.Spool{Dir: "x", MaxBytes: 1} },
		"Spool.MaxAge: is -1ns, must be 0":                                               func(r *snapshot.Recorder[row]) { r.Spool = &snapshot.Spool{Dir: "x", MaxAge: -1} },
	} {
		r := good()
		change(r)
		require.ErrorContains(t, r.Start(t.Context()), "snapshot: "+want)
	}
}
