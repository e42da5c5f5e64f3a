package outside_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

var mark = outside.Mark{Cluster: "c", Namespace: "team", Name: "app", UID: "u1"}

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, retained := range []bool{false, true} {
		m := mark
		m.Retained = retained
		for _, more := range []string{"", " anon-read"} {
			found, ok := outside.ParseMark(m.String() + more)
			require.True(t, ok)
			require.Equal(t, m, found)
		}
	}
	for _, text := range []string{"", "my schema", "platform.internal", "platform.internal cluster=c namespace=n name=a uid=", "other cluster=c namespace=n name=a uid=u"} {
		_, ok := outside.ParseMark(text)
		require.False(t, ok, text)
	}
}

func TestOnlyTheSameObjectOwnsAndOnlyTheSameNameAdopts(t *testing.T) {
	t.Parallel()
	with := func(change func(*outside.Mark)) string {
		m := mark
		change(&m)
		return m.String()
	}
	for text, want := range map[string]outside.Claim{
		mark.String(): outside.Ours,
		with(func(m *outside.Mark) { m.UID = "u2" }):                            outside.Foreign,
		with(func(m *outside.Mark) { m.Cluster = "d" }):                         outside.Foreign,
		with(func(m *outside.Mark) { m.Namespace = "other" }):                   outside.Foreign,
		with(func(m *outside.Mark) { m.Name = "other" }):                        outside.Foreign,
		with(func(m *outside.Mark) { m.UID, m.Retained = "u2", true }):          outside.Adoptable,
		with(func(m *outside.Mark) { m.Namespace, m.Retained = "other", true }): outside.Foreign,
		with(func(m *outside.Mark) { m.Cluster, m.Retained = "d", true }):       outside.Foreign,
		"":                 outside.Foreign,
		"made by a person": outside.Foreign,
	} {
		require.Equal(t, want, mark.Claim(text), text)
	}
}

func TestAReasonIsThatOfTheGravestError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		outside.ReasonOwnedByOther: outside.Owned("schema x", mark.String()),
		outside.ReasonDenied:       fmt.Errorf("x: %w", outside.ErrDenied),
		outside.ReasonUnreachable:  fmt.Errorf("x: %w", context.DeadlineExceeded),
		outside.ReasonUnset:        outside.ErrUnset,
		outside.ReasonFailed:       errors.New("x"),
	} {
		require.Equal(t, want, outside.Reason(err))
		require.Equal(t, want != outside.ReasonUnreachable && want != outside.ReasonFailed, outside.Lasting(err))
	}
	require.ErrorContains(t, outside.Owned("schema x", mark.String()), "belongs to team/app (UID u1) of cluster c")
	require.ErrorContains(t, outside.Owned("schema x", ""), "has no mark of this operator")
	left := mark
	left.Retained = true
	require.ErrorContains(t, outside.Owned("schema x", left.String()), "which is gone and has left it")
}
