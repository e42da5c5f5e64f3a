package reconcile_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

var errBoom = errors.New("boom")

// same fails the test unless got equals want.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// says fails the test unless err has this text.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one that says %q", err, want)
	}
}

// start runs s in the background until stop is called, which returns what Start
// returned.
func start(t *testing.T, s reconcile.Starter) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// stopped calls stop and fails the test if Start returned an error.
func stopped(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Start returned %v, want nil", err)
	}
}

// diary notes what happened, from any goroutine.
type diary[T any] struct {
	mu    sync.Mutex
	begun time.Time
	notes []T
}

func newDiary[T any]() *diary[T] { return &diary[T]{begun: time.Now()} }

func (d *diary[T]) note(n T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, n)
}

// elapsed is the time since the diary was begun.
func (d *diary[T]) elapsed() time.Duration { return time.Since(d.begun) }

// read returns the notes so far.
func (d *diary[T]) read() []T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]T{}, d.notes...)
}

func seconds(s ...float64) []time.Duration {
	list := make([]time.Duration, len(s))
	for i, s := range s {
		list[i] = time.Duration(s * float64(time.Second))
	}
	return list
}
