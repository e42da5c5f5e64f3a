package external_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

var (
	errAway = errors.New("the service is away")
	errDead = errors.New("the process has ended")
)

// world is a service of DNS in memory, the status of one object, and a process that can end at any
// request to either. A record needs its zone: the service keeps it so.
type world struct {
	t        *testing.T
	uid      types.UID
	things   map[string]string // the text of the mark, by kind and ID
	status   []external.Thing
	finished bool // the finalizer is gone

	zone, records, mail bool // wanted
	names               []string
	policy              string
	fails               map[string]error // by the beginning of a request
	calls               []string         // that have changed something

	requests, endAt int // the process ends at this request, before it is done
	after           bool
	dead            bool
	stop            context.CancelFunc

	gates  map[string]external.Gate
	checks external.Checks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, uid: "u1", things: map[string]string{}, zone: true, records: true, mail: true, names: []string{"www", "api"},
		fails: map[string]error{}, checks: external.Checks{Interval: 5 * time.Minute}, gates: map[string]external.Gate{},
	}
}

func (w *world) mark() external.Mark {
	return external.Mark{Domain: "dns.example.com", Cluster: "c", Namespace: "team", Name: "site", UID: string(w.uid)}
}

// request does what the process asks for, unless it ends before.
func (w *world) request(what string, do func() error) error {
	if w.dead {
		return errDead
	}
	w.requests++
	ends := w.requests == w.endAt
	if ends && !w.after {
		w.end()
		return errDead
	}
	for prefix, err := range w.fails {
		if strings.HasPrefix(what, prefix) {
			return err
		}
	}
	err := do()
	if ends {
		w.end()
		return errDead
	}
	return err
}

func (w *world) end() {
	w.dead = true
	if w.stop != nil {
		w.stop()
	}
}

// restart lets another process work: it remembers nothing.
func (w *world) restart() {
	w.dead, w.endAt, w.checks = false, 0, external.Checks{Interval: w.checks.Interval, Now: w.checks.Now}
}

func key(e external.Thing) string { return e.Kind + "/" + e.ID }

// create is a request to make a thing. It checks that the thing is recorded.
func (w *world) create(e external.Thing) error {
	return w.request("create "+key(e), func() error {
		text, exists := w.things[key(e)]
		switch claim := w.mark().Claim(text); {
		case exists && claim == external.Foreign:
			return external.Owned("dns.example.com", key(e), text)
		case exists && claim == external.Ours:
			return nil
		case e.Kind == "Record" && w.things["Zone/example"] == "":
			w.t.Errorf("%s is made without its zone", key(e))
		case !slices.ContainsFunc(w.status, func(r external.Thing) bool { return key(r) == key(e) }):
			w.t.Errorf("%s is made and not recorded: %v", key(e), w.status)
		}
		w.things[key(e)] = w.mark().String()
		w.calls = append(w.calls, "create "+key(e))
		return nil
	})
}

// remove is a request to delete a thing, or to leave it as retained.
func (w *world) remove(e external.Thing) error {
	return w.request("delete "+key(e), func() error {
		if w.mark().Claim(w.things[key(e)]) != external.Ours {
			return nil
		}
		if e.Kind == "Zone" {
			for other, text := range w.things {
				if strings.HasPrefix(other, "Record/") && w.mark().Claim(text) == external.Ours {
					w.t.Errorf("the zone is deleted before %s", other)
				}
			}
		}
		if e.Policy == "Retain" {
			left := w.mark()
			left.Retained = true
			w.things[key(e)] = left.String()
		} else {
			delete(w.things, key(e))
		}
		w.calls = append(w.calls, "delete "+key(e))
		return nil
	})
}

// part returns a part whose things are made and deleted one by one.
func (w *world) part(name, kind string, wanted bool, ids ...string) *external.Part {
	t := &external.Part{Name: name, Wanted: wanted, Kinds: []string{kind}, Gate: w.gates[name]}
	for _, id := range ids {
		t.Things = append(t.Things, external.Thing{Kind: kind, ID: id, Policy: w.policy})
	}
	t.Make = func(context.Context) error {
		var failed []error
		for _, e := range t.Things {
			failed = append(failed, w.create(e))
		}
		return errors.Join(failed...)
	}
	t.Delete = func(_ context.Context, e external.Thing) error { return w.remove(e) }
	return t
}

// pass returns the next pass: a zone, records that need it, and mail.
func (w *world) pass() *external.Pass {
	zone := w.part("zone", "Zone", w.zone, "example")
	records := w.part("records", "Record", w.records, w.names...)
	records.Needs = []string{"zone"}
	return &external.Pass{
		Parts: []*external.Part{zone, records, w.part("mail", "Mailbox", w.mail, "post")}, Recorded: w.status, Checks: &w.checks,
		UID: w.uid, Version: fmt.Sprint(w.zone, w.records, w.mail, w.names, w.policy),
	}
}

// write stores the status.
func (w *world) write(p *external.Pass) error {
	return w.request("status", func() error {
		w.status = p.Merge(w.status)
		return nil
	})
}

func (w *world) record(p *external.Pass) func() ([]external.Thing, error) {
	return func() ([]external.Thing, error) {
		err := w.write(p)
		return slices.Clone(w.status), err
	}
}

func free(context.Context) error { return nil }

// run does one pass for the object that is not deleted.
func (w *world) run(ctx context.Context) (*external.Pass, error) {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	p := w.pass()
	if err := p.Plan(w.record(p)); err != nil {
		return p, err
	}
	p.Make(ctx)
	p.Prune(ctx, free)
	return p, w.write(p)
}

// teardown does one pass for the object that is deleted.
func (w *world) teardown(ctx context.Context) error {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	p := w.pass()
	gone, err := p.Teardown(ctx)
	err = errors.Join(err, w.write(p))
	w.finished = gone && err == nil
	return err
}

// ours are the things that have the mark of the object and are not retained.
func (w *world) ours() (found []string) {
	for name, text := range w.things {
		if m, ok := external.ParseMark("dns.example.com", text); ok && m == w.mark() {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// named returns a part by its name.
func named(p *external.Pass, name string) *external.Part {
	return p.Parts[slices.IndexFunc(p.Parts, func(t *external.Part) bool { return t.Name == name })]
}
