package external_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

func TestAPassThatIsWrongDoesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	for want, wrong := range map[string]func(p *external.Pass){
		`Part "records".Needs[1]: is "zoen", must be the name of a part before it: zone`: func(p *external.Pass) {
			named(p, "records").Needs = []string{"zone", "zoen"}
		},
		`Part "zone".Needs[0]: is "records", must be the name of a part before it: there is none`: func(p *external.Pass) {
			named(p, "zone").Needs = []string{"records"}
		},
		`Part "mail".Needs[0]: is "mail", must be the name of a part before it: zone, records`: func(p *external.Pass) {
			named(p, "mail").Needs = []string{"mail"}
		},
		`Part "zone".Name: is that of two parts, must be a name that no other part has`: func(p *external.Pass) {
			named(p, "mail").Name = "zone"
		},
		`Pass.Parts[2].Name: is empty, must be a name that no other part has`: func(p *external.Pass) { named(p, "mail").Name = "" },
		`Pass.Parts[3]: is nil, must be a part`:                               func(p *external.Pass) { p.Parts = append(p.Parts, nil) },
		`Part "mail".Delete: is nil, must be a function: the part has Kinds`:  func(p *external.Pass) { named(p, "mail").Delete = nil },
		`Part "mail".Kinds: has "Zone", must be kinds of no other part, and "zone" has it`: func(p *external.Pass) {
			named(p, "mail").Kinds = []string{"Mailbox", "Zone"}
		},
		`Part "mail".Things[0].Kind: is "Mailbox", must be one of Kinds: Post`: func(p *external.Pass) {
			named(p, "mail").Kinds = []string{"Post"}
		},
	} {
		want = "external: " + want
		w := newWorld(t)
		p := w.pass()
		wrong(p)
		require.EqualError(t, p.Validate(), want)
		require.ErrorIs(t, p.Validate(), reconcile.ErrTerminal)
		p = w.pass()
		wrong(p)
		require.EqualError(t, p.Plan(w.record(p)), want)
		require.Zero(t, w.requests, "nothing is recorded")
		require.Equal(t, time.Hour, p.Make(t.Context()))
		for _, part := range p.Parts {
			require.EqualError(t, part.Err, want)
			require.Equal(t, readiness.Lasting, external.CauseOf(part.Err).Outlook)
		}

		_, err := w.run(t.Context())
		require.NoError(t, err)
		calls := len(w.calls)
		w.zone, w.records, w.mail = false, false, false
		p = w.pass()
		wrong(p)
		p.Prune(t.Context(), free)
		left := 0
		for _, part := range p.Parts {
			if part.Left != nil {
				require.EqualError(t, part.Left, want)
				left++
			}
		}
		require.NotZero(t, left, want)
		gone, err := p.Teardown(t.Context())
		require.False(t, gone)
		require.EqualError(t, err, want)
		require.Len(t, w.calls, calls, "nothing is removed")
	}
}

func TestAPassWithoutChecksMakesNothing(t *testing.T) {
	t.Parallel()
	part := &external.Part{Name: "a", Wanted: true, Make: func(context.Context) error { t.Error("it is made"); return nil }}
	p := external.Pass{Parts: []*external.Part{part, {Name: "b"}}}
	require.NoError(t, p.Validate(), "a teardown needs none")
	require.Equal(t, time.Hour, p.Make(t.Context()))
	require.EqualError(t, part.Err, "external: Pass.Checks: is nil, must be the Checks of all passes of the program")
	require.NoError(t, p.Parts[1].Err, "it is not wanted")
}
