package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// Recorder records, at each instant that is a multiple of Period, what Collect yields,
// and delivers it to Sink. Set the fields and [Recorder.Start] it.
type Recorder[R any] struct {
	// Source proves that what Collect reads is current. Default nil: it always is.
	Source Source

	// Collect returns the records of an instant, which is in UTC. Each is encoded with
	// encoding/json. Required. It may be called more than once for an instant. Batches
	// are delivered while it is iterated, so the sequence must hold no lock. With an
	// error nothing is recorded, and the instant is tried again until it is over.
	Collect func(ctx context.Context, at time.Time) (iter.Seq[R], error)

	// Sink takes the records. Required.
	Sink Sink

	// Period is the time from one instant to the next, at least a millisecond. Default
	// one minute. Instants are multiples of it since the year 1: with a minute, full
	// minutes.
	Period time.Duration

	// Spread is within what time after an instant the records of many recorders are sent: each
	// waits for a part of it, which it draws when it starts. The records stay those of the
	// instant. Less than half of Period. Default 0: they are sent at once.
	Spread time.Duration

	// Spool keeps what could not be delivered. Default nil: it is lost.
	Spool *Spool

	// MaxRecords is the number of records in a batch. Default 5,000.
	MaxRecords int

	// MaxBytes is the size in bytes of the records of a batch, with a comma each. A
	// larger record is rejected. Default 8 MiB less 1 KiB, which leaves room for what
	// a sink puts around them.
	MaxBytes int

	// OnPass is called, if set, after each pass on the goroutine of Start.
	OnPass func(Pass)

	// Logger receives a line for each pass that failed or lost records. Default nil,
	// which is silent.
	Logger *slog.Logger
}

const (
	defaultPeriod     = time.Minute
	defaultMaxRecords = 5000
	defaultMaxBytes   = 8<<20 - 1<<10
	// maxRetry bounds the time until a refused instant is tried again.
	maxRetry = time.Second
	// lastSend is how long records that waited may take once the recorder is stopped.
	lastSend = 5 * time.Second
)

// Start records until ctx ends, and then returns nil. The first instant is the one that
// has begun before Start: what an earlier process may have recorded already has the same
// identity. The error is about the fields.
func (r *Recorder[R]) Start(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	w := &worker[R]{Recorder: *r, batch: newBatch()}
	w.Period = cmp.Or(r.Period, defaultPeriod)
	w.MaxRecords = cmp.Or(r.MaxRecords, defaultMaxRecords)
	w.MaxBytes = cmp.Or(r.MaxBytes, defaultMaxBytes)
	w.Logger = cmp.Or(r.Logger, slog.New(slog.DiscardHandler))
	if r.Spread > 0 {
		w.delay = rand.N(r.Spread) //nolint:gosec // no secret
	}
	w.run(ctx)
	return nil
}

func (r *Recorder[R]) validate() error {
	switch {
	case r.Collect == nil:
		return errors.New("snapshot: Recorder.Collect: is required")
	case r.Sink == nil:
		return errors.New("snapshot: Recorder.Sink: is required")
	case r.Period != 0 && r.Period < time.Millisecond:
		return fmt.Errorf("snapshot: Recorder.Period: is %v, must be 0 (1m default) or at least 1ms", r.Period)
	case r.Spread < 0 || 2*r.Spread >= cmp.Or(r.Period, defaultPeriod):
		return fmt.Errorf(
			"snapshot: Recorder.Spread: is %v, must be 0 or more, and less than half of Period, %v",
			r.Spread,
			cmp.Or(r.Period, defaultPeriod),
		)
	case r.MaxRecords < 0:
		return fmt.Errorf("snapshot: Recorder.MaxRecords: is %d, must be 0 (%d default) or more", r.MaxRecords, defaultMaxRecords)
	case r.MaxBytes < 0:
		return fmt.Errorf("snapshot: Recorder.MaxBytes: is %d, must be 0 (%d default) or more", r.MaxBytes, defaultMaxBytes)
	case r.Spool == nil:
		return nil
	}
	return r.Spool.validate()
}

// worker is a Recorder that runs, with its defaults.
type worker[R any] struct {
	Recorder[R]
	batch   *batch
	journal *journal // nil while it is not open
	retry   bool     // the sink failed in this pass: what remains waits in the spool
	// delay is how long after an instant its records are sent, and waiting are those that are
	// not spooled, by batch.
	delay   time.Duration
	waiting [][]json.RawMessage
}

func (w *worker[R]) run(ctx context.Context) {
	defer w.close(ctx)
	var seen, recorded time.Time // the instants that were tried, and recorded, last
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		at := now.Truncate(w.Period).UTC()
		if !at.Equal(recorded) && (!at.Equal(seen) || w.current(now)) {
			again := at.Equal(seen)
			pass := w.pass(ctx, at, again)
			if !seen.IsZero() && !again {
				pass.Missed = max(0, int(at.Sub(seen)/w.Period)-1)
			}
			if pass.recorded {
				recorded = at
			}
			// An instant that fails again was reported before.
			if pass.recorded || !again || pass.Accepted+pass.Duplicates+pass.Rejected+pass.Lost > 0 {
				w.report(ctx, pass, seen.IsZero())
			}
			seen = at
		}
		timer.Reset(w.wait(at, at.Equal(recorded)))
	}
}

// wait returns the time until the next instant, or until the current one must be tried
// again.
func (w *worker[R]) wait(at time.Time, done bool) time.Duration {
	// By the clock of instants, which may be set: not the monotonic one.
	next := max(at.Add(w.Period).Sub(time.Now().Round(0)), time.Millisecond)
	// A clock that was set back must not stop the records for as long.
	next = min(next, w.Period)
	if done {
		return next
	}
	return min(next, maxRetry, max(w.Period/10, time.Millisecond))
}

// current reports whether the view is proven to be current.
func (w *worker[R]) current(now time.Time) bool {
	if w.Source == nil {
		return true
	}
	return now.Sub(w.Source.Seen()) < 2*w.Period // of the zero time it is the longest that there is
}

// pass records one instant, and delivers the records in the spool.
func (w *worker[R]) pass(ctx context.Context, at time.Time, again bool) (pass Pass) {
	pass.At = at
	ctx, cancel := context.WithTimeout(ctx, max(time.Until(at.Add(w.Period)), w.Period/2))
	defer cancel()
	w.retry = false
	w.open(&pass)
	w.record(ctx, &pass)
	ctx, done := w.await(ctx, at)
	defer done()
	w.deliver(ctx, &pass)
	if w.journal != nil {
		if !again || pass.recorded {
			w.drain(ctx, &pass)
		}
		pass.Lost += w.journal.takeLost()
		pass.Spooled, pass.SpoolBytes = w.journal.pending()
	}
	return pass
}

// record collects the records of the instant, and delivers or spools them.
func (w *worker[R]) record(ctx context.Context, pass *Pass) {
	if !w.current(time.Now()) {
		if w.Source.Seen().IsZero() {
			pass.early = true
			pass.failed(fmt.Errorf("%w: it has not been complete yet", ErrStale))
			return
		}
		pass.failed(fmt.Errorf("%w: no event or bookmark for %v", ErrStale, 2*w.Period))
		return
	}
	defer contain(pass)
	defer func() { w.batch.reset() }()
	records, err := w.Collect(ctx, pass.At)
	if err != nil {
		pass.failed(fmt.Errorf("collect: %w", err))
		return
	}
	for record := range records {
		pass.Collected++
		if err := w.batch.add(record); err != nil {
			pass.reject([]Rejection{{Reason: err.Error()}})
			continue
		}
		if w.batch.last() >= w.MaxBytes {
			pass.reject([]Rejection{{Reason: fmt.Sprintf("the record has %d bytes, a batch takes %d", w.batch.last(), w.MaxBytes-1)}})
			w.batch.dropLast()
			continue
		}
		if w.batch.bytes() > w.MaxBytes {
			over := w.batch.dropLast()
			w.flush(ctx, pass)
			w.batch.put(over)
		}
		if len(w.batch.ends) == w.MaxRecords {
			w.flush(ctx, pass)
		}
	}
	w.flush(ctx, pass)
	pass.recorded = true
}

// await waits until the records of the instant are sent. If the recorder is stopped meanwhile,
// those that are in no spool are sent at once, with the context that it returns.
func (w *worker[R]) await(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	wait := at.Add(w.delay).Sub(time.Now().Round(0))
	if w.delay == 0 || pause.For(ctx, min(wait, w.delay)) || len(w.waiting) == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lastSend)
}

// deliver sends the batches that are not spooled.
func (w *worker[R]) deliver(ctx context.Context, pass *Pass) {
	for _, records := range w.waiting {
		if err := w.send(ctx, pass, records); err != nil && !errors.Is(err, ErrRefused) {
			pass.Lost += len(records)
		}
	}
	w.waiting = nil
}

// flush spools the batch, or where there is no spool delivers it, or has it wait.
func (w *worker[R]) flush(ctx context.Context, pass *Pass) {
	records := w.batch.records()
	if len(records) == 0 {
		return
	}
	if w.journal != nil {
		err := w.journal.append(records, time.Now())
		if err == nil {
			w.batch.reset()
			return
		}
		pass.failed(fmt.Errorf("spool: %w", err))
	}
	w.waiting = append(w.waiting, records)
	if w.delay > 0 {
		w.batch = newBatch() // these records are in the other one
		return
	}
	w.deliver(ctx, pass)
	w.batch.reset()
}

// drain delivers the records in the spool, oldest first, until the sink fails.
func (w *worker[R]) drain(ctx context.Context, pass *Pass) {
	for !w.retry && ctx.Err() == nil {
		records, err := w.journal.next(w.MaxRecords, w.MaxBytes, time.Now())
		if err != nil {
			pass.failed(fmt.Errorf("spool: %w", err))
			return
		}
		if len(records) == 0 {
			return
		}
		if err := w.send(ctx, pass, records); err != nil && !errors.Is(err, ErrRefused) {
			return
		}
		if err := w.journal.delivered(); err != nil {
			pass.failed(fmt.Errorf("spool: %w", err))
			return
		}
	}
}

// send delivers records, and counts what became of them unless they may still be
// delivered.
func (w *worker[R]) send(ctx context.Context, pass *Pass, records []json.RawMessage) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = fmt.Errorf("panic: %v\n%s", recovered, debug.Stack())
		}
		if err != nil {
			w.retry = true
			pass.failed(fmt.Errorf("send %d records: %w", len(records), err))
		}
		if errors.Is(err, ErrRefused) {
			w.retry = false
			pass.Rejected += len(records)
		}
	}()
	receipt, err := w.Sink.Send(ctx, records)
	if err != nil {
		return err
	}
	if n := receipt.Accepted + receipt.Duplicates + len(receipt.Rejected); receipt.Accepted < 0 || receipt.Duplicates < 0 ||
		n != len(records) {
		return fmt.Errorf(
			"the sink accounts for %d records (%d accepted, %d duplicates, %d rejected)",
			n,
			receipt.Accepted,
			receipt.Duplicates,
			len(receipt.Rejected),
		)
	}
	pass.Accepted += receipt.Accepted
	pass.Duplicates += receipt.Duplicates
	pass.reject(receipt.Rejected)
	return nil
}

// open opens the spool. One that cannot be opened is tried again at the next pass.
func (w *worker[R]) open(pass *Pass) {
	if w.Spool == nil || w.journal != nil {
		return
	}
	journal, err := openJournal(w.Spool)
	if err != nil {
		pass.failed(fmt.Errorf("spool: %w", err))
		return
	}
	w.journal = journal
}

func (w *worker[R]) close(ctx context.Context) {
	if w.journal == nil {
		return
	}
	if err := w.journal.close(); err != nil {
		w.Logger.WarnContext(ctx, "spool not closed", slog.Any("error", err))
	}
}

// report tells what became of an instant, and whether it was the first one: the view of a program that has just
// started is not complete yet, and the instant is tried again.
func (w *worker[R]) report(ctx context.Context, pass Pass, first bool) {
	if pass.Err != nil || pass.Lost > 0 || pass.Rejected > 0 || pass.Missed > 0 {
		level := slog.LevelWarn
		if first && pass.early && pass.Lost+pass.Rejected+pass.Spooled == 0 {
			level = slog.LevelDebug
		}
		w.Logger.Log(ctx, level, "snapshot incomplete", slog.Time("at", pass.At), slog.Int("collected", pass.Collected),
			slog.Int("rejected", pass.Rejected), slog.Int("lost", pass.Lost), slog.Int("spooled", pass.Spooled),
			slog.Int("missed", pass.Missed), slog.Any("error", pass.Err))
	}
	if w.OnPass == nil {
		return
	}
	defer func() {
		if recovered := recover(); recovered != nil {
			w.Logger.ErrorContext(ctx, "OnPass panicked", slog.Any("panic", recovered), slog.String("stack", string(debug.Stack())))
		}
	}()
	w.OnPass(pass)
}

// contain makes a panic of user code the error of the pass.
func contain(pass *Pass) {
	if recovered := recover(); recovered != nil {
		pass.failed(fmt.Errorf("collect: panic: %v\n%s", recovered, debug.Stack()))
	}
}
