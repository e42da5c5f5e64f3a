package statesynctest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// ReaderProgram is a reader under [RunReader]: a program in any language, or a function.
type ReaderProgram struct {
	// Run reads scope at url with the bearer token, and calls proven with each state
	// that it has proven, until ctx ends or the reader stops of its own accord.
	// Required. It is called by several goroutines, each with another url.
	Run func(ctx context.Context, url, scope, token string, proven func(ReaderState)) error
}

// ReaderState is one proven state of a reader.
type ReaderState struct {
	Epoch   string `json:"epoch"`
	Version uint64 `json:"version"`
	// Items are the live items, in any order.
	Items []statesync.Item `json:"items"`
	// Deleted are the keys of tombstones since the last state, and Absent those of the
	// last state that a proven list lacks.
	Deleted []statesync.Key `json:"deleted"`
	Absent  []statesync.Key `json:"absent"`
}

// Command returns a reader that is a process. It is started with the arguments args, the
// URL and the scope, has the token in the variable STATESYNC_TOKEN, and writes each
// [ReaderState] as one line of JSON to its standard output. It is killed at the end.
func Command(name string, args ...string) ReaderProgram {
	return ReaderProgram{Run: func(ctx context.Context, url, scope, token string, proven func(ReaderState)) error {
		command := exec.CommandContext(ctx, name, append(append([]string{}, args...), url, scope)...)
		command.Env = append(os.Environ(), "STATESYNC_TOKEN="+token)
		var complaints bytes.Buffer
		command.Stderr = &complaints
		command.WaitDelay = 10 * time.Second
		output, err := command.StdoutPipe()
		if err != nil {
			return err
		}
		if err := command.Start(); err != nil {
			return err
		}
		lines := bufio.NewScanner(output)
		lines.Buffer(nil, 16<<20)
		var wrong error
		for wrong == nil && lines.Scan() {
			var state ReaderState
			if wrong = json.Unmarshal(lines.Bytes(), &state); wrong == nil {
				proven(state)
			}
		}
		if wrong = errors.Join(wrong, lines.Err()); wrong != nil {
			_ = command.Process.Kill() // what it writes is no state: nothing else is read from it
			wrong = fmt.Errorf("%w: %w", errNoState, wrong)
		}
		if err := errors.Join(wrong, command.Wait()); err != nil {
			return fmt.Errorf("%w: %s", err, complaints.Bytes()[max(0, complaints.Len()-4<<10):])
		}
		return nil
	}}
}

// errNoState is a process whose output is no line of a [ReaderState].
var errNoState = errors.New("output is not one state as JSON in each line")

// RunReader checks that a reader fulfils the protocol of docs/protocol.md: it serves a log
// over HTTP, with faults, and compares the states that the reader reports, and what it asks
// for, with the log. Each check has a log and a run of the reader of its own.
func RunReader(t *testing.T, reader ReaderProgram) {
	t.Helper()
	runReaderChecks(t, readerChecks(), reader)
}

// atOnce is how many checks run at a time. They mostly wait for the pauses of the reader: go
// test would run as many as there are processors.
const atOnce = 24

func runReaderChecks(t *testing.T, checks []readerCheck, reader ReaderProgram) {
	t.Helper()
	slots := make(chan struct{}, atOnce)
	results := make([]chan error, len(checks))
	for n, check := range checks {
		results[n] = make(chan error, 1)
		go func() {
			slots <- struct{}{}
			results[n] <- runReaderCheck(t.Context(), check, reader, Limit)
			<-slots
		}()
	}
	for n, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			if err := <-results[n]; err != nil {
				t.Error(err)
			}
		})
	}
}

// readerCheck is one sentence of what a reader must do.
type readerCheck struct {
	name string
	run  func(ctx context.Context, s *stand) error
	// acts answer the first requests.
	acts []act
}

func readerChecks() []readerCheck {
	return []readerCheck{
		{name: "an empty scope is proven", run: readsEmpty},
		{name: "a list goes over into changes", run: readsChanges},
		{name: "a tombstone is an order", run: readsTombstone},
		{name: "a commit is whole", run: readsWhole},
		{name: "a cut stream goes on from its cursor and mark", run: readsOn},
		{name: "a line that is cut is no frame", run: readsHalfLine},
		{name: "a restart of the server costs no list", run: readsRestart},
		{name: "a restore leads to a list, and absent keys are reported once it is proven", run: readsRestore},
		{name: "a cursor below the floor leads to a list", run: readsFloor},
		{name: "a tombstone in a list is an order", run: readsListedTombstone},
		{name: "a server behind its past is refused", run: readsBehind},
		{name: "a lost frame is found", run: readsLostFrame},
		{name: "a lost item is found by the digest", run: readsLostItem},
		{name: "a wrong count is refused", run: readsWrongCount},
		{name: "a list that is not proven is not taken", run: readsWrongList},
		{name: "a login page is an outage", run: readsLogin},
		{name: "a 404 of a proxy proves nothing", run: readsProxy404},
		{name: "a redirect is not followed", run: readsRedirect},
		{name: "an unknown scope keeps the state, and is listed when it is back", run: readsUnknown},
		{name: "401 stops requests", run: readsUnauthenticated},
		{name: "403 of a proxy stops requests", run: readsForbidden},
		{name: "a silent stream is dead", run: readsSilence},
		{name: "bytes without a frame are silence", run: readsDrip},
	}
}

func runReaderCheck(ctx context.Context, check readerCheck, reader ReaderProgram, patience time.Duration) error {
	s, err := newStand(ctx, reader, patience, check.acts)
	if err != nil {
		return err
	}
	err = check.run(ctx, s)
	return errors.Join(err, s.close())
}
