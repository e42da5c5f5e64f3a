package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// house is a thing built by steps that can be told to fail.
type house struct {
	calls []string
	built map[string]bool
	fails map[string]error
}

func (h *house) steps(names ...string) reconcile.Steps {
	var steps reconcile.Steps
	h.built = make(map[string]bool)
	for _, name := range names {
		call := func(what string, built bool) func(context.Context) error {
			return func(context.Context) error {
				h.calls = append(h.calls, what+name)
				if err := h.fails[what+name]; err != nil {
					return err
				}
				h.built[name] = built
				return nil
			}
		}
		steps = append(steps, reconcile.Step{
			Name: name, Do: call("+", true), Undo: call("-", false),
			Done: func(context.Context) (bool, error) { return h.built[name], h.fails["?"+name] },
		})
	}
	return steps
}

func TestStepsAreDoneInOrderAndUndoneInReverse(t *testing.T) {
	var h house
	steps := h.steps("floor", "wall", "roof")
	same(t, "Do", steps.Do(t.Context()), nil)
	same(t, "Undo", steps.Undo(t.Context()), nil)
	same(t, "calls", h.calls, []string{"+floor", "+wall", "+roof", "-roof", "-wall", "-floor"})
}

func TestDoStopsAtTheFirstFailureAndNamesTheStep(t *testing.T) {
	h := house{fails: map[string]error{"+wall": errBoom}}
	err := h.steps("floor", "wall", "roof").Do(t.Context())
	says(t, err, "wall: boom")
	same(t, "is the cause", errors.Is(err, errBoom), true)
	same(t, "calls", h.calls, []string{"+floor", "+wall"})
}

func TestDoResumesBehindTheStepsThatAreDone(t *testing.T) {
	h := house{fails: map[string]error{"+wall": errBoom}}
	steps := h.steps("floor", "wall", "roof")
	says(t, steps.Do(t.Context()), "wall: boom")
	h.fails, h.calls = nil, nil
	same(t, "Do again", steps.Do(t.Context()), nil)
	same(t, "calls", h.calls, []string{"+wall", "+roof"})
}

func TestAFailingCheckIsNotTakenForDone(t *testing.T) {
	h := house{fails: map[string]error{"?wall": errBoom}}
	says(t, h.steps("floor", "wall", "roof").Do(t.Context()), "wall: boom")
	same(t, "calls", h.calls, []string{"+floor"})
}

func TestUndoGoesOnPastFailuresAndJoinsThem(t *testing.T) {
	leak := errors.New("leak")
	h := house{fails: map[string]error{"-roof": errBoom, "-wall": leak}}
	err := h.steps("floor", "wall", "roof").Undo(t.Context())
	says(t, err, "undo roof: boom\nundo wall: leak")
	same(t, "both causes", errors.Is(err, errBoom) && errors.Is(err, leak), true)
	same(t, "calls", h.calls, []string{"-roof", "-wall", "-floor"})
}

func TestAPanicInAStepIsItsError(t *testing.T) {
	blow := func(context.Context) error { panic(errBoom) }
	undone := false
	steps := reconcile.Steps{
		{Name: "first", Undo: func(context.Context) error { undone = true; return nil }},
		{Do: blow, Undo: blow},
	}
	err := steps.Do(t.Context())
	says(t, err, "step 2: panic: boom")
	panicked, ok := errors.AsType[*reconcile.PanicError](err)
	same(t, "is a PanicError with a stack", ok && len(panicked.Stack) > 0, true)
	same(t, "is the value of the panic", errors.Is(err, errBoom), true)
	says(t, steps.Undo(t.Context()), "undo step 2: panic: boom")
	same(t, "the other step is undone", undone, true)
}

func TestStepsStopBetweenStepsWhenCtxEnds(t *testing.T) {
	for _, undo := range []bool{false, true} {
		t.Run(fmt.Sprintf("undo %v", undo), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := 0
			call := func(context.Context) error { calls++; cancel(); return nil }
			steps := reconcile.Steps{{Name: "a", Do: call, Undo: call}, {Name: "b", Do: call, Undo: call}}
			run, left := steps.Do, "b"
			if undo {
				run, left = steps.Undo, "undo a"
			}
			err := run(ctx)
			says(t, err, left+": context canceled")
			same(t, "calls", calls, 1)
		})
	}
}
