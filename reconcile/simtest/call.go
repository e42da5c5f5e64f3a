package simtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Call is a call of the program to something else than the API server, such as a cloud in
// memory. net is what Scenario.Program has received. The call takes its turn among the
// requests of the program, at which do carries it out at once, and its error is the answer.
// The program may be killed before and after it, also by a [Sweep]; no other disturbance
// meets it. A call of a program that was killed is not carried out.
func Call(ctx context.Context, net http.RoundTripper, name string, do func(*World) error) error {
	p, ok := net.(*process)
	if !ok {
		return errors.New("simtest: Call: net is not what Scenario.Program has received")
	}
	w, request := p.world, applytest.Request{Verb: "call", Path: name}
	if err := p.turn(ctx, request); err != nil {
		return err
	}
	if p.net.Crashed() {
		return applytest.ErrCrashed
	}
	kill := p.killed(request)
	if kill != "" {
		w.Log("life %d: %s %s", p.life, kill, request)
		defer p.net.Crash()
	}
	if kill == applytest.KillBefore {
		return applytest.ErrCrashed
	}
	err := do(w)
	w.lateness()
	w.Log("life %d: %s: %v", p.life, request, answerOf(err))
	if kill != "" {
		return applytest.ErrCrashed
	}
	return err
}

func answerOf(err error) any {
	if err == nil {
		return "done"
	}
	return err
}

// killed returns how a call kills the program, empty if it does not.
func (p *process) killed(r applytest.Request) applytest.Disturbance {
	w := p.world
	w.mu.Lock()
	calm, here := w.calm, w.plan.cuts(r.String(), w.requests)
	if here {
		w.reached = r.String()
	}
	w.mu.Unlock()
	if here {
		w.Disturb(time.Now())
		return w.plan.cut.What
	}
	if calm {
		return ""
	}
	return w.happens(r, func() applytest.Disturbance {
		dice := w.dice(fmt.Sprintf("life %d: fault %s", p.life, r))
		if dice.Float64() < w.deathRate && len(w.deaths) > 0 {
			return w.deaths[dice.IntN(len(w.deaths))]
		}
		return ""
	})
}

// turn waits for the turn of a call, and counts it.
func (p *process) turn(ctx context.Context, r applytest.Request) error {
	w, name, turn := p.world, fmt.Sprintf("life %d: %s", p.life, r), make(chan struct{})
	i := w.agenda.after(w.latency(name), name, func() { close(turn) })
	select {
	case <-turn:
	case <-ctx.Done():
		w.agenda.drop(i)
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, r.String())
	return nil
}
