package external_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

var mark = external.Mark{Cluster: "c", Namespace: "team", Name: "app", UID: "u1"}

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, retained := range []bool{false, true} {
		m := mark
		m.Retained = retained
		for _, more := range []string{"", " anon-read"} {
			found, ok := external.ParseMark(m.String() + more)
			require.True(t, ok)
			require.Equal(t, m, found)
		}
	}
	for _, text := range []string{"", "my schema", "platform.internal", "platform.internal cluster=c namespace=n name=a uid=", "other cluster=c namespace=n name=a uid=u"} {
		_, ok := external.ParseMark(text)
		require.False(t, ok, text)
	}
}

func TestOnlyTheSameObjectOwnsAndOnlyTheSameNameAdopts(t *testing.T) {
	t.Parallel()
	with := func(change func(*external.Mark)) string {
		m := mark
		change(&m)
		return m.String()
	}
	for text, want := range map[string]external.Claim{
		mark.String(): external.Ours,
		with(func(m *external.Mark) { m.UID = "u2" }):                            external.Foreign,
		with(func(m *external.Mark) { m.Cluster = "d" }):                         external.Foreign,
		with(func(m *external.Mark) { m.Namespace = "other" }):                   external.Foreign,
		with(func(m *external.Mark) { m.Name = "other" }):                        external.Foreign,
		with(func(m *external.Mark) { m.UID, m.Retained = "u2", true }):          external.Adoptable,
		with(func(m *external.Mark) { m.Namespace, m.Retained = "other", true }): external.Foreign,
		with(func(m *external.Mark) { m.Cluster, m.Retained = "d", true }):       external.Foreign,
		"":                 external.Foreign,
		"made by a person": external.Foreign,
	} {
		require.Equal(t, want, mark.Claim(text), text)
	}
}

func TestAReasonIsThatOfTheGravestError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		external.ReasonOwnedByOther: external.Owned("schema x", mark.String()),
		external.ReasonDenied:       fmt.Errorf("x: %w", external.ErrDenied),
		external.ReasonUnreachable:  fmt.Errorf("x: %w", context.DeadlineExceeded),
		external.ReasonUnset:        external.ErrUnset,
		external.ReasonFailed:       errors.New("x"),
	} {
		require.Equal(t, want, external.Reason(err))
		require.Equal(t, want != external.ReasonUnreachable && want != external.ReasonFailed, external.Lasting(err))
	}
	require.ErrorContains(t, external.Owned("schema x", mark.String()), "belongs to team/app (UID u1) of cluster c")
	require.ErrorContains(t, external.Owned("schema x", ""), "has no mark of this operator")
	left := mark
	left.Retained = true
	require.ErrorContains(t, external.Owned("schema x", left.String()), "which is gone and has left it")
}
