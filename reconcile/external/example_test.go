package external_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// site is an object with two records in DNS, as an API has it.
type site struct {
	name, uid string
	status    []external.Thing // on the API server
	cause     readiness.Cause  // a condition
}

// records are the zone of a service of DNS, by name, with the text of a mark in each.
type records map[string]string

func (r records) make(mark external.Mark, name string) error {
	text, exists := r[name]
	if exists && mark.Claim(text) == external.Foreign {
		return external.Owned(mark.Domain, "record "+name, text)
	}
	r[name] = mark.String()
	return nil
}

func (r records) delete(mark external.Mark, name string) {
	if mark.Claim(r[name]) == external.Ours {
		delete(r, name)
	}
}

// A site has a record for its name, and a record for mail that needs it. Another object has a
// record of that name already: it is refused, and stays.
func ExamplePass() {
	zone := records{"mx.blog": "dns.example.com cluster=c namespace=team name=other uid=u0"}
	gate := external.NewGate(6) // of eight workers
	checks := &external.Checks{Interval: 5 * time.Minute}
	newPass := func(s *site) *external.Pass {
		mark := external.Mark{Domain: "dns.example.com", Cluster: "c", Namespace: "team", Name: s.name, UID: s.uid}
		part := func(name, kind, record string, needs ...string) *external.Part {
			return &external.Part{
				Name: name, Wanted: true, Kinds: []string{kind}, Needs: needs, Gate: gate,
				Things: []external.Thing{{Kind: kind, ID: record}},
				Make:   func(context.Context) error { return zone.make(mark, record) },
				Delete: func(_ context.Context, t external.Thing) error { zone.delete(mark, t.ID); return nil },
			}
		}
		return &external.Pass{
			Parts:    []*external.Part{part("host", "Record", s.name), part("mail", "MailRecord", "mx."+s.name, "host")},
			Recorded: s.status, Checks: checks, UID: "u1", Version: "1",
		}
	}

	reconcile := func(ctx context.Context, s *site) error {
		pass := newPass(s)
		if err := pass.Plan(func() ([]external.Thing, error) {
			s.status = pass.Merge(s.status) // in an operator kube.Status writes it
			return s.status, nil
		}); err != nil {
			return err
		}
		pass.Make(ctx)
		pass.Prune(ctx, func(context.Context) error { return nil }) // no pod uses them
		s.status, s.cause = pass.Merge(s.status), readiness.Cause{}
		for _, part := range pass.Parts {
			s.cause = readiness.First(s.cause, external.CauseOf(part.Err), external.CauseOf(part.Left))
		}
		return nil
	}

	ctx := context.Background()
	blog := &site{name: "blog", uid: "u1"}
	if err := reconcile(ctx, blog); err != nil {
		fmt.Println(err)
	}
	fmt.Println(blog.status)
	fmt.Println(blog.cause.Reason, blog.cause.Outlook)
	fmt.Println(blog.cause.Message)

	pass := newPass(blog) // it is deleted: called by kube.Finalizer
	fmt.Println(pass.Teardown(ctx))
	fmt.Println(zone)
	// Output:
	// [{Record blog  true} {MailRecord mx.blog  false}]
	// NotOurs Lasting
	// record mx.blog belongs to team/other (UID u0) of cluster c: is owned by another; remove that, or choose another name
	// true <nil>
	// map[mx.blog:dns.example.com cluster=c namespace=team name=other uid=u0]
}

func ExampleMark() {
	mark := external.Mark{Domain: "dns.example.com", Cluster: "c", Namespace: "team", Name: "blog", UID: "u1"}
	fmt.Println(mark)
	left := mark
	left.UID, left.Retained = "u0", true
	for _, text := range []string{mark.String(), left.String(), "made by hand"} {
		switch mark.Claim(text) {
		case external.Ours:
			fmt.Println("make it as it should be, or delete it")
		case external.Adoptable:
			fmt.Println("write our mark into it")
		case external.Foreign:
			fmt.Println(external.Owned(mark.Domain, "record blog", text))
		}
	}
	// Output:
	// dns.example.com cluster=c namespace=team name=blog uid=u1
	// make it as it should be, or delete it
	// write our mark into it
	// record blog exists and has no mark of this operator: is owned by another; remove it, or choose another name
}

func ExampleParseMark() {
	mark, ok := external.ParseMark("dns.example.com", "dns.example.com cluster=c namespace=team name=blog uid=u1 retained")
	fmt.Println(mark.Namespace, mark.Name, mark.Retained, ok)
	// Output: team blog true true
}

func ExampleCauseOf() {
	for _, err := range []error{
		nil, errors.New("503 Service Unavailable"), external.Owned("dns.example.com", "record www", "made by hand"),
	} {
		cause := external.CauseOf(err)
		fmt.Printf("%q %q\n", cause.Reason, cause.Outlook)
	}
	// Output:
	// "" ""
	// "RequestFailed" "Transient"
	// "NotOurs" "Lasting"
}

// Of two passes that use a service with one place, the second comes again later.
func ExampleGate() {
	gate := external.NewGate(1)
	newPass := func(work func(context.Context) error) *external.Pass {
		return &external.Pass{
			Parts:  []*external.Part{{Name: "host", Wanted: true, Gate: gate, Make: work}},
			Checks: &external.Checks{Interval: time.Minute},
		}
	}
	ctx := context.Background()
	first := newPass(func(ctx context.Context) error {
		second := newPass(func(context.Context) error { return nil })
		second.Make(ctx)
		fmt.Println("second:", second.Parts[0].Err)
		return nil
	})
	first.Make(ctx)
	fmt.Println("first:", first.Parts[0].Err)
	// Output:
	// second: waits for its turn
	// first: <nil>
}

// After an event that changed a thing, the next pass looks at it.
func ExampleChecks() {
	checks := &external.Checks{Interval: 5 * time.Minute}
	reconcile := func() {
		pass := external.Pass{UID: "u1", Checks: checks, Parts: []*external.Part{{
			Name: "host", Wanted: true, Make: func(context.Context) error { fmt.Println("looked"); return nil },
		}}}
		pass.Make(context.Background())
	}
	reconcile()
	reconcile() // a moment later
	checks.Forget("u1")
	reconcile()
	// Output:
	// looked
	// looked
}
