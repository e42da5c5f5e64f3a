package statesynctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Vector is a part of a reader's life that was written down: the answers that it gets, and
// the states and requests that follow from them. See docs/protocol.md.
type Vector struct {
	Name string `json:"name"`
	Why  string `json:"why"`
	// Refusal is the check that a frame of the streams fails, empty if none does.
	Refusal string `json:"refusal,omitempty"`
	// Streams are the answers to the requests, one after another.
	Streams []VectorStream `json:"streams"`
	// States are the states that are proven, in order.
	States []ReaderState `json:"states"`
	// Requests are the parameters after, epoch and mark of the requests; a list has none.
	// The last one may be beyond the streams: it shows what became of them.
	Requests []map[string]string `json:"requests"`
}

// VectorStream is an answer.
type VectorStream struct {
	// Status is that of the answer; 0 is 200.
	Status int `json:"status,omitempty"`
	// Lines are the body.
	Lines []string `json:"lines"`
	// Open reports that the stream stays open. Otherwise its connection is cut.
	Open bool `json:"open,omitempty"`
}

// RunVectors plays the vectors of a file, a JSON list, to a reader.
func RunVectors(t *testing.T, file string, reader ReaderProgram) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []Vector
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%s: %d vectors, %v", file, len(vectors), err)
	}
	var checks []readerCheck
	for _, v := range vectors {
		check := readerCheck{name: v.Name + ": " + v.Why, run: func(ctx context.Context, s *stand) error { return s.play(ctx, v) }}
		for _, stream := range v.Streams {
			check.acts = append(check.acts, stream.act())
		}
		check.acts = append(check.acts, slices.Repeat([]act{hangs}, 20)...) // beyond them is a server of another log
		checks = append(checks, check)
	}
	runReaderChecks(t, checks, reader)
}

func (v VectorStream) act() act {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		if v.Status != 0 {
			w.WriteHeader(v.Status)
		}
		_, err := w.Write([]byte(strings.Join(v.Lines, "\n") + "\n"))
		err = errors.Join(err, http.NewResponseController(w).Flush())
		switch {
		case err == nil && v.Open:
			<-r.Context().Done()
		case v.Status == 0:
			abort()
		}
	}
}

// hangs answers nothing.
func hangs(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// play expects what the vector says.
func (s *stand) play(ctx context.Context, v Vector) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	s.recorded = true
	for n, want := range v.Requests {
		query, _, err := s.request(ctx, n+1)
		if err != nil {
			return err
		}
		for _, name := range []string{"after", "epoch", "mark"} {
			if query.Get(name) != want[name] {
				return fmt.Errorf("request %d: %s: is %q, must be %q", n+1, name, query.Get(name), want[name])
			}
		}
	}
	for {
		s.mu.Lock()
		more, states := s.more, s.states
		s.mu.Unlock()
		err := follow(states, v.States)
		if err == nil || !errors.Is(err, errFewer) || len(states) > len(v.States) {
			return err
		}
		select {
		case <-more:
		case <-s.ended:
			return fmt.Errorf("the reader has ended: %w: %w", s.endErr, err)
		case <-ctx.Done():
			return err
		}
	}
}

// errFewer is a reader that has not proven the last state.
var errFewer = errors.New("fewer states than expected")

// follow returns an error unless have is want. States of have that follow each other fast
// may be left out, but not the last.
func follow(have, want []ReaderState) error {
	at := 0
	for _, state := range have {
		for at < len(want) && !sameState(state, want[at]) {
			at++
		}
		if at == len(want) {
			return fmt.Errorf("state %d@%s with %s is not expected here", state.Version, state.Epoch, list(state.Items))
		}
		at++
	}
	if at < len(want) {
		return fmt.Errorf("%w: %d of %d", errFewer, at, len(want))
	}
	return nil
}

func sameState(a, b ReaderState) bool {
	byVersion := func(items []statesync.Item) []statesync.Item {
		items = slices.Clone(items)
		slices.SortFunc(items, func(a, b statesync.Item) int { return int(a.Version) - int(b.Version) }) //nolint:gosec // small numbers
		return items
	}
	keys := func(keys []statesync.Key) []statesync.Key {
		keys = slices.Clone(keys)
		slices.SortFunc(keys, func(a, b statesync.Key) int { return strings.Compare(a.String(), b.String()) })
		return keys
	}
	return a.Epoch == b.Epoch && a.Version == b.Version && slices.EqualFunc(byVersion(a.Items), byVersion(b.Items), sameItem) &&
		slices.Equal(keys(a.Deleted), keys(b.Deleted)) && slices.Equal(keys(a.Absent), keys(b.Absent))
}
