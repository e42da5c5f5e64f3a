package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Step is one step of [Steps]. Do and Undo must be safe to repeat: after a
// crash the whole sequence runs again.
type Step struct {
	// Name stands in the errors of the step. Default "step N", counted from 1.
	Name string

	// Do takes the step. Nil does nothing.
	Do func(ctx context.Context) error

	// Undo takes the step back. It is called whether or not the step was taken, or
	// taken halfway, so a missing thing must not be an error. Nil does nothing.
	Undo func(ctx context.Context) error

	// Done reports whether the result of Do exists already; then Do is skipped. Nil
	// means that Do is always called.
	Done func(ctx context.Context) (bool, error)
}

// Steps builds something up in order and takes it down in reverse. It holds no
// state, so a sequence that was cut short, in either direction, is resumed by
// running it again. It is safe for concurrent use if its functions are.
type Steps []Step

// Do takes the steps in order, without those that are Done, and stops at the
// first that fails. Nothing is undone then: run Do again to resume, or Undo to
// give up. The error names the step; a panic becomes a [PanicError]. Do also
// stops when ctx ends, before the next step.
func (s Steps) Do(ctx context.Context) error {
	for i, step := range s {
		err := ctx.Err()
		if err == nil {
			err = step.do(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(i), err)
		}
	}
	return nil
}

// Undo takes back all steps in reverse order, continuing after those that fail,
// and returns their errors joined, each naming its step; a panic becomes a
// [PanicError]. Undo stops early only when ctx ends; its error then names the step.
func (s Steps) Undo(ctx context.Context) error {
	var errs []error
	for i, step := range slices.Backward(s) {
		ended := ctx.Err()
		err := ended
		if err == nil {
			err = step.undo(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", s.name(i), err))
		}
		if ended != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (s Steps) name(i int) string {
	if s[i].Name == "" {
		return fmt.Sprintf("step %d", i+1)
	}
	return s[i].Name
}

func (s Step) do(ctx context.Context) (err error) {
	defer contain(&err)
	if s.Done != nil {
		if done, err := s.Done(ctx); done || err != nil {
			return err
		}
	}
	if s.Do == nil {
		return nil
	}
	return s.Do(ctx)
}

func (s Step) undo(ctx context.Context) (err error) {
	defer contain(&err)
	if s.Undo == nil {
		return nil
	}
	return s.Undo(ctx)
}
