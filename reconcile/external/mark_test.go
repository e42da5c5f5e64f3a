package external_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

func mark(change func(*external.Mark)) external.Mark {
	m := external.Mark{Domain: "dns.example.com", Cluster: "c", Namespace: "team", Name: "site", UID: "u1"}
	if change != nil {
		change(&m)
	}
	return m
}

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, retained := range []bool{false, true} {
		m := mark(func(m *external.Mark) { m.Retained = retained })
		for _, more := range []string{"", " more"} {
			found, ok := external.ParseMark(m.Domain, m.String()+more)
			require.True(t, ok)
			require.Equal(t, m, found)
		}
		_, ok := external.ParseMark("example.com", m.String())
		require.False(t, ok, "another operator's")
	}
	for _, text := range []string{
		"", "my zone", "dns.example.com", "dns.example.com cluster=c namespace=n name=a uid=",
		"dns.example.com cluster=c name=a namespace=n uid=u", "dns.example.comcluster=c namespace=n name=a uid=u",
	} {
		_, ok := external.ParseMark("dns.example.com", text)
		require.False(t, ok, text)
	}
}

func FuzzNoOtherTextIsOurs(f *testing.F) {
	f.Add(mark(nil).String())
	f.Add(mark(func(m *external.Mark) { m.Retained = true }).String() + " more")
	f.Add("dns.example.com cluster=c namespace=team name=site uid=u1 uid=u2")
	f.Fuzz(func(t *testing.T, text string) {
		found, ok := external.ParseMark("dns.example.com", text)
		claim := mark(nil).Claim(text)
		found.Retained = false
		if same := ok && found == mark(nil); claim == external.Ours && !same {
			t.Errorf("%q is taken for ours", text)
		}
		if !ok && claim != external.Foreign {
			t.Errorf("%q has no mark, and is claimed", text)
		}
	})
}

func TestOnlyTheSameObjectOwnsAndOnlyTheSameNameAdopts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]external.Claim{
		mark(nil).String(): external.Ours,
		mark(func(m *external.Mark) { m.UID = "u2" }).String():                            external.Foreign,
		mark(func(m *external.Mark) { m.Domain = "example.com" }).String():                external.Foreign,
		mark(func(m *external.Mark) { m.Cluster = "d" }).String():                         external.Foreign,
		mark(func(m *external.Mark) { m.Namespace = "other" }).String():                   external.Foreign,
		mark(func(m *external.Mark) { m.Name = "other" }).String():                        external.Foreign,
		mark(func(m *external.Mark) { m.UID, m.Retained = "u2", true }).String():          external.Adoptable,
		mark(func(m *external.Mark) { m.Retained = true }).String():                       external.Adoptable,
		mark(func(m *external.Mark) { m.Namespace, m.Retained = "other", true }).String(): external.Foreign,
		mark(func(m *external.Mark) { m.Cluster, m.Retained = "d", true }).String():       external.Foreign,
		"":                 external.Foreign,
		"made by a person": external.Foreign,
	} {
		require.Equal(t, want, mark(nil).Claim(text), text)
	}
}

func TestARefusalNamesTheOwner(t *testing.T) {
	t.Parallel()
	const domain = "dns.example.com"
	require.EqualError(t, external.Owned(domain, "record www", mark(nil).String()),
		"record www belongs to team/site (UID u1) of cluster c: is owned by another; remove that, or choose another name")
	require.ErrorContains(t, external.Owned(domain, "record www", mark(func(m *external.Mark) { m.Retained = true }).String()),
		"of cluster c, which is gone and has left it: ")
	require.EqualError(t, external.Owned(domain, "record www", "mine"),
		"record www exists and has no mark of this operator: is owned by another; remove it, or choose another name")
	require.ErrorIs(t, external.Owned(domain, "record www", ""), external.ErrOwnedByOther)
}

// TestACauseHasTheWordsOfTheKit compares the reasons with those of package apply.
func TestACauseHasTheWordsOfTheKit(t *testing.T) {
	t.Parallel()
	foreign := external.Owned("dns.example.com", "record www", "")
	for _, c := range []struct {
		err     error
		reason  readiness.Reason
		outlook readiness.Outlook
	}{
		{nil, "", ""},
		{errors.Join(fmt.Errorf("%w for its turn", external.ErrWaits), foreign), apply.ReasonNotOurs, readiness.Lasting},
		{
			errors.Join(fmt.Errorf("%w for its turn", external.ErrWaits), reconcile.Terminal(errAway)),
			apply.ReasonRequestFailed, readiness.Lasting,
		},
		{fmt.Errorf("%w for its turn", external.ErrWaits), "Progressing", readiness.Waiting},
		{foreign, apply.ReasonNotOurs, readiness.Lasting},
		{reconcile.Terminal(foreign), apply.ReasonNotOurs, readiness.Lasting},
		{errors.Join(errAway, foreign), apply.ReasonNotOurs, readiness.Lasting},
		{errAway, apply.ReasonRequestFailed, readiness.Transient},
		{fmt.Errorf("zone: %w", reconcile.Terminal(errAway)), apply.ReasonRequestFailed, readiness.Lasting},
		{&reconcile.PanicError{Value: "a bug"}, apply.ReasonRequestFailed, readiness.Lasting},
	} {
		want := readiness.Cause{Reason: c.reason, Outlook: c.outlook}
		if c.err != nil {
			want.Message = c.err.Error()
		}
		require.Equal(t, want, external.CauseOf(c.err), fmt.Sprint(c.err))
	}
}
