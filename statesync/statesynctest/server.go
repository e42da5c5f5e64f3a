package statesynctest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Server is a server under [RunServer]: a source of frames over an empty scope, and the
// log behind it.
type Server struct {
	// Source is the source under test. Required.
	Source statesync.Source
	// Scope is an empty scope that it serves. Required.
	Scope string
	// Commit commits changes as one transaction. Required.
	Commit func(ctx context.Context, changes ...statesync.Change) error
	// Forget drops the tombstones up to the head and raises the floor to it.
	// Nil skips the checks that need it.
	Forget func(ctx context.Context) error
	// Restore gives the log a new epoch, with the same state. Nil skips the checks
	// that need it.
	Restore func(ctx context.Context) error

	// patience is how long to wait for a frame that must come. Default Limit.
	patience time.Duration
}

// RunServer checks that a source of frames fulfils the contracts of [statesync.Source]
// and [statesync.Frame]. It calls open for each check.
func RunServer(t *testing.T, open func(t *testing.T) Server) {
	t.Helper()
	for _, check := range serverChecks {
		t.Run(check.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), Limit)
			defer cancel()
			err := check.run(ctx, s)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// serverCheck is one sentence of the contract of a server. It returns what the server did
// wrong.
type serverCheck struct {
	name string
	run  func(ctx context.Context, s Server) error
}

var serverChecks = []serverCheck{ //nolint:gochecknoglobals // a table
	{"an empty scope syncs at once", checkEmpty},
	{"a list goes over into changes", checkListThenWatch},
	{"a change during a list is not lost", checkChangeDuringList},
	{"a long list comes in order", checkLongList},
	{"a commit is whole", checkWholeCommits},
	{"a large commit is whole", checkLargeCommit},
	{"a stream resumes where it stood", checkResume},
	{"a bookmark passes other collections", checkCollections},
	{"an idle stream is alive", checkHeartbeat},
	{"a tombstone arrives late", checkTombstone},
	{"a cursor below the floor must list", checkFloor},
	{"a cursor from the future must list", checkFuture},
	{"a cursor of another epoch must list", checkEpoch},
	{"a cursor of another history must list", checkHistory},
	{"a restore ends streams", checkRestore},
	{"an unknown scope is an error", checkUnknownScope},
	{"an invalid request is named", checkInvalid},
	{"a reader may stop", checkStop},
}

func (s Server) watch() statesync.Watch { return statesync.Watch{Scope: s.Scope} }

// item is a change of one of a few collections.
func (s Server) item(collection string, id, value int) statesync.Change {
	return statesync.Change{
		Scope: s.Scope, Key: statesync.Key{Collection: collection, ID: strconv.Itoa(id)},
		Value: json.RawMessage(strconv.Itoa(value)),
	}
}

func (s Server) deletion(collection string, id int) statesync.Change {
	return statesync.Change{Scope: s.Scope, Key: statesync.Key{Collection: collection, ID: strconv.Itoa(id)}, Deleted: true}
}

// errEnough ends a stream once the check has seen enough.
var errEnough = errors.New("enough")

// read plays a stream onto the tape until enough returns true.
func (s Server) read(ctx context.Context, w statesync.Watch, tape *Tape, enough func(statesync.Frame) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.patience, Limit))
	defer cancel()
	err := s.Source.Watch(ctx, w, func(f statesync.Frame) error {
		if err := tape.Add(f); err != nil {
			return err
		}
		done, err := enough(f)
		if err == nil && done {
			return errEnough
		}
		return err
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil:
		return errors.New("stream ended without a reason")
	case ctx.Err() != nil:
		return fmt.Errorf("reliable: expected frames did not come in time, at version %d: %w", tape.Cursor.Version, err)
	}
	return err
}

func until(tape *Tape, version uint64) func(statesync.Frame) (bool, error) {
	return func(statesync.Frame) (bool, error) {
		return tape.Synced && tape.Consistent && tape.Cursor.Version >= version, nil
	}
}

// synced plays a whole list, and the changes up to version.
func (s Server) synced(ctx context.Context, version uint64) (*Tape, error) {
	tape := &Tape{}
	return tape, s.read(ctx, s.watch(), tape, until(tape, version))
}

func (t *Tape) holds(want map[string]string) error {
	have := map[string]string{}
	for key, i := range t.Items {
		if !i.Deleted {
			have[key.String()] = string(i.Value)
		}
	}
	for key, value := range want {
		if have[key] != value {
			return fmt.Errorf("reliable: %s is %q, not %q", key, have[key], value)
		}
	}
	if len(have) != len(want) {
		return fmt.Errorf("reliable: %d items, not %d: %v", len(have), len(want), have)
	}
	return nil
}

func checkEmpty(ctx context.Context, s Server) error {
	tape, err := s.synced(ctx, 0)
	return errors.Join(err, tape.holds(nil))
}

func checkListThenWatch(ctx context.Context, s Server) error {
	if err := s.Commit(ctx, s.item("a", 1, 1), s.item("a", 2, 1), s.item("b", 1, 1)); err != nil {
		return err
	}
	tape := &Tape{}
	changed := false
	err := s.read(ctx, s.watch(), tape, func(f statesync.Frame) (bool, error) {
		if f.Type == statesync.FrameSynced {
			changed = true
			return false, s.Commit(ctx, s.item("a", 1, 2), s.deletion("a", 2), s.item("b", 2, 1))
		}
		return changed && tape.Consistent && tape.Cursor.Version >= 6, nil
	})
	return errors.Join(err, tape.holds(map[string]string{"a/1": "2", "b/1": "1", "b/2": "1"}))
}

// many commits n items, in transactions of a hundred.
func (s Server) many(ctx context.Context, collection string, n, value int) error {
	for from := 0; from < n; from += 100 {
		var changes []statesync.Change
		for id := from; id < min(from+100, n); id++ {
			changes = append(changes, s.item(collection, id, value))
		}
		if err := s.Commit(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}

func checkLongList(ctx context.Context, s Server) error {
	const n = 2500
	if err := s.many(ctx, "a", n, 1); err != nil {
		return err
	}
	tape, err := s.synced(ctx, n)
	if err == nil && len(tape.Items) != n {
		err = fmt.Errorf("reliable: %d items, not %d", len(tape.Items), n)
	}
	return err
}

func checkChangeDuringList(ctx context.Context, s Server) error {
	const n = 2500
	if err := s.many(ctx, "a", n, 1); err != nil {
		return err
	}
	tape, changed := &Tape{}, false
	err := s.read(ctx, s.watch(), tape, func(f statesync.Frame) (bool, error) {
		if f.Type == statesync.FrameItems && !changed {
			changed = true
			return false, s.Commit(ctx, s.item("a", 0, 2), s.item("a", n-1, 2), s.item("b", 0, 2))
		}
		return tape.Synced && tape.Consistent && tape.Cursor.Version >= n+3, nil
	})
	if err != nil {
		return err
	}
	for _, key := range []statesync.Key{{Collection: "a", ID: "0"}, {Collection: "a", ID: strconv.Itoa(n - 1)}, {Collection: "b", ID: "0"}} {
		if value := string(tape.Items[key].Value); value != "2" {
			return fmt.Errorf("reliable: %s is %q after a change during the list, not 2", key, value)
		}
	}
	return nil
}

// checkWholeCommits changes two keys together again and again: at each
// consistent point they must be equal.
func checkWholeCommits(ctx context.Context, s Server) error {
	const rounds = 200
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	committed := make(chan error, 1)
	go func() {
		for n := range rounds {
			if err := s.Commit(ctx, s.item("a", 1, n), s.item("b", 1, n)); err != nil {
				committed <- err
				return
			}
		}
		committed <- nil
	}()
	tape := &Tape{}
	err := s.read(ctx, s.watch(), tape, func(statesync.Frame) (bool, error) {
		a, b := tape.Items[statesync.Key{Collection: "a", ID: "1"}], tape.Items[statesync.Key{Collection: "b", ID: "1"}]
		if tape.Consistent && string(a.Value) != string(b.Value) {
			return false, fmt.Errorf("atomic: at version %d half of a commit is readable: %s and %s", tape.Cursor.Version, a.Value, b.Value)
		}
		return tape.Cursor.Version >= 2*rounds, nil
	})
	cancel()
	if committedErr := <-committed; err == nil && committedErr != nil {
		err = committedErr
	}
	return err
}

// checkLargeCommit changes more keys together than fit into a frame.
func checkLargeCommit(ctx context.Context, s Server) error {
	const n, rounds = 1500, 3
	tape, round := &Tape{}, 0
	return s.read(ctx, s.watch(), tape, func(statesync.Frame) (bool, error) {
		if !tape.Consistent {
			return false, nil
		}
		values := map[string]int{}
		for _, i := range tape.Items {
			values[string(i.Value)]++
		}
		if len(values) > 1 || len(tape.Items) != 0 && len(tape.Items) != n {
			return false, fmt.Errorf("atomic: at version %d a part of a commit is readable: %v", tape.Cursor.Version, values)
		}
		if tape.Cursor.Version != uint64(n*round) { //nolint:gosec // a small number
			return false, nil
		}
		if round++; round > rounds {
			return true, nil
		}
		changes := make([]statesync.Change, n)
		for id := range changes {
			changes[id] = s.item("a", id, round)
		}
		return false, s.Commit(ctx, changes...)
	})
}
