package statesynctest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	standScope = "eu west/1" // it must be escaped
	standToken = "token-of-the-reader"
)

// stand is a log, its server, a door before it, and a reader.
type stand struct {
	log      *statesync.Memory
	door     *door
	web      *httptest.Server
	patience time.Duration

	stopServer func() error
	// startReader starts the reader once it is waited for: after the first commit.
	startReader, stopReader func()

	mu     sync.Mutex
	states []ReaderState
	more   chan struct{}
	ended  chan struct{}
	endErr error

	// The rest belongs to the check. checked counts the states that were compared, last is
	// the newest of them, and truth has the live items of the log after each commit.
	checked int
	// recorded reports that there is no log: a vector says what must be reported.
	recorded bool
	last     ReaderState
	truth    map[statesync.Cursor][]statesync.Item
	gone     map[statesync.Key]bool
}

func newStand(ctx context.Context, reader ReaderProgram, patience time.Duration, acts []act) (*stand, error) {
	s := &stand{
		log: &statesync.Memory{}, door: &door{arrived: make(chan struct{}), plan: acts}, patience: patience,
		more: make(chan struct{}), ended: make(chan struct{}),
		truth: map[statesync.Cursor][]statesync.Item{}, gone: map[statesync.Key]bool{},
	}
	if err := s.log.AddScope(standScope); err != nil {
		return nil, err
	}
	if err := s.record(ctx); err != nil {
		return nil, err
	}
	s.serve(ctx)
	s.web = httptest.NewServer(s.door)
	running, cancel := context.WithCancel(ctx)
	start := sync.OnceFunc(func() {
		go func() {
			defer close(s.ended)
			s.endErr = reader.Run(running, s.web.URL, standScope, standToken, s.proven)
		}()
	})
	s.startReader = start
	s.stopReader = func() {
		cancel()
		start()
		<-s.ended
	}
	return s, nil
}

// serve starts a server of the log.
func (s *stand) serve(ctx context.Context) {
	server := &statesync.Server{Log: s.log, Heartbeat: 5 * time.Second}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- server.Start(running) }()
	s.stopServer = func() error { cancel(); return <-done }
	s.door.set(false, &statesync.Handler{Server: server, Authorize: func(r *http.Request, _ string) (string, error) {
		if r.Header.Get("Authorization") != "Bearer "+standToken {
			return "", statesync.ErrUnauthenticated
		}
		return "reader", nil
	}})
}

// close stops everything, and returns the error of a state that was reported last.
func (s *stand) close() error {
	s.stopReader()
	s.web.CloseClientConnections()
	err := s.stopServer()
	s.web.Close()
	if err := errors.Join(err, s.compare()); err != nil {
		return err
	}
	if errors.Is(s.endErr, errNoState) {
		return s.endErr
	}
	return nil
}

func (s *stand) proven(state ReaderState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, state)
	close(s.more)
	s.more = make(chan struct{})
}

// commit commits changes: a value of 0 is a deletion.
func (s *stand) commit(ctx context.Context, changes ...statesync.Change) error {
	for n := range changes {
		changes[n].Scope = standScope
		if changes[n].Deleted {
			s.gone[changes[n].Key] = true
		}
	}
	return errors.Join(s.log.Commit(changes...), s.record(ctx))
}

func puts(id string, value int) statesync.Change {
	return statesync.Change{Key: statesync.Key{Collection: "a", ID: id}, Value: json.RawMessage(strconv.Itoa(value))}
}

func deletes(id string) statesync.Change {
	return statesync.Change{Key: statesync.Key{Collection: "a", ID: id}, Deleted: true}
}

func (s *stand) all(ctx context.Context) (statesync.Page, error) {
	return s.log.Read(ctx, standScope, 0, 1<<20)
}

// record notes what the log has now.
func (s *stand) record(ctx context.Context) error {
	page, err := s.all(ctx)
	if err != nil {
		return err
	}
	live := slices.DeleteFunc(page.Items, func(i statesync.Item) bool { return i.Deleted })
	s.truth[statesync.Cursor{Epoch: page.Epoch, Version: page.Head}] = live
	return nil
}

// compare compares the states that were reported since the last call with the log.
func (s *stand) compare() error {
	if s.recorded {
		return nil
	}
	s.mu.Lock()
	states := s.states
	s.mu.Unlock()
	for _, state := range states[s.checked:] {
		s.checked++
		if err := s.right(state); err != nil {
			return fmt.Errorf("state %d@%s: %w", state.Version, state.Epoch, err)
		}
		s.last = state
	}
	return nil
}

func (s *stand) right(state ReaderState) error {
	truth, known := s.truth[statesync.Cursor{Epoch: state.Epoch, Version: state.Version}]
	if !known {
		return errors.New("the log never had it at the end of a commit")
	}
	items := slices.SortedFunc(slices.Values(state.Items), func(a, b statesync.Item) int { return cmp.Compare(a.Version, b.Version) })
	if !slices.EqualFunc(items, truth, sameItem) {
		return fmt.Errorf("the reader has %d items %.300s, the log had %d", len(items), list(items), len(truth))
	}
	live := func(key statesync.Key) bool {
		return slices.ContainsFunc(truth, func(i statesync.Item) bool { return i.Key == key })
	}
	for _, key := range state.Deleted {
		if live(key) || !s.gone[key] {
			return fmt.Errorf("deleted: %s, which no tombstone says", key)
		}
	}
	for _, key := range state.Absent {
		if slices.Contains(state.Deleted, key) {
			return fmt.Errorf("absent: %s, which a tombstone says is deleted", key)
		}
		if live(key) || !slices.ContainsFunc(s.last.Items, func(i statesync.Item) bool { return i.Key == key }) {
			return fmt.Errorf("absent: %s, which the list has, or the state before had not", key)
		}
	}
	for _, old := range s.last.Items {
		if !live(old.Key) && !slices.Contains(state.Deleted, old.Key) && !slices.Contains(state.Absent, old.Key) {
			return fmt.Errorf("%s is gone, but neither deleted nor absent", old.Key)
		}
	}
	return nil
}

func sameItem(a, b statesync.Item) bool {
	var one, other bytes.Buffer
	return a.Version == b.Version && a.Key == b.Key && a.Deleted == b.Deleted &&
		json.Compact(&one, a.Value) == nil && json.Compact(&other, b.Value) == nil && one.String() == other.String()
}

// reaches waits until the reader has proven the newest state of the log.
func (s *stand) reaches(ctx context.Context) (ReaderState, error) {
	s.startReader()
	patience := s.patience
	if s.checked == 0 {
		patience = Limit // a process is starting
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	page, err := s.all(ctx)
	if err != nil {
		return ReaderState{}, err
	}
	for {
		s.mu.Lock()
		more := s.more
		s.mu.Unlock()
		if err := s.compare(); err != nil {
			return s.last, err
		}
		if s.checked > 0 && s.last.Version == page.Head && s.last.Epoch == page.Epoch {
			return s.last, nil
		}
		select {
		case <-more:
		case <-s.ended:
			return s.last, fmt.Errorf("the reader has ended at version %d: %w", s.last.Version, s.endErr)
		case <-ctx.Done():
			return s.last, fmt.Errorf("the reader is at %d@%s, the log at %d@%s", s.last.Version, s.last.Epoch, page.Head, page.Epoch)
		}
	}
}

// changes commits, and waits until the reader has it.
func (s *stand) changes(ctx context.Context, changes ...statesync.Change) (ReaderState, error) {
	if err := s.commit(ctx, changes...); err != nil {
		return ReaderState{}, err
	}
	return s.reaches(ctx)
}

// errAway is a reader that sends no request.
var errAway = errors.New("the reader does not come back")

// request waits for the n-th request, and compares what the reader reports meanwhile.
func (s *stand) request(ctx context.Context, n int) (query url.Values, mark string, err error) {
	s.startReader()
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for {
		s.mu.Lock()
		reported := s.more
		s.mu.Unlock()
		query, mark, more, ok := s.door.request(n)
		if err := s.compare(); ok || err != nil {
			return query, mark, err
		}
		select {
		case <-more:
		case <-reported:
		case <-s.ended:
			if _, _, _, ok := s.door.request(n); !ok {
				return nil, "", fmt.Errorf("%w: it has ended after %d requests: %w", errAway, s.door.count(), s.endErr)
			}
		case <-ctx.Done():
			return nil, "", fmt.Errorf("%w: %d requests, not %d", errAway, s.door.count(), n)
		}
	}
}

// asks waits for the n-th request, which must list, or go on from the newest proven state
// with the newest mark.
func (s *stand) asks(ctx context.Context, n int, list bool) error {
	query, mark, err := s.request(ctx, n)
	if err != nil {
		return err
	}
	if list {
		return listed(query, n)
	}
	for _, want := range [][2]string{{"after", strconv.FormatUint(s.last.Version, 10)}, {"epoch", s.last.Epoch}, {"mark", mark}} {
		if have := query.Get(want[0]); have != want[1] {
			return fmt.Errorf("request %d: %s: is %q, must be %q", n, want[0], have, want[1])
		}
	}
	return nil
}

// listed returns an error unless the request asks for everything.
func listed(query url.Values, n int) error {
	if after := query.Get("after"); after != "" && after != "0" {
		return fmt.Errorf("request %d: after: is %q, must be absent: the state is in doubt", n, after)
	}
	return nil
}
