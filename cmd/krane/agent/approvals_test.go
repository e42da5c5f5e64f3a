package agent //nolint:testpackage // collections hold what a test gives them

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
)

func TestAnApprovalIsForWhatAllCollectionsHold(t *testing.T) {
	t.Parallel()
	holds := func(digest string) apply.Held {
		if digest == "" {
			return apply.Held{}
		}
		return apply.Held{Units: []apply.HeldUnit{{Unit: digest}}, Digest: digest}
	}
	for name, test := range map[string]struct {
		approve               func(a *approvals)
		deployments, policies string // approved
	}{
		"nothing":          {func(*approvals) {}, "", ""},
		"all":              {func(a *approvals) { require.True(t, a.approve(a.sum())) }, "d", "p"},
		"one collection's": {func(a *approvals) { require.False(t, a.approve("d")) }, "", ""},
		"all, and the first is deleted": {func(a *approvals) {
			a.approve(a.sum())
			a.hold(stream.Deployments, holds(""))
		}, "", "p"},
		"all, before it is held": {func(a *approvals) {
			sum := a.sum()
			a.hold(stream.Policies, holds(""))
			require.False(t, a.approve(sum))
			a.hold(stream.Policies, holds("p"))
		}, "d", "p"},
		"all, and the first holds others": {func(a *approvals) {
			a.approve(a.sum())
			a.hold(stream.Deployments, holds("e"))
		}, "", ""},
		"all, and a third holds some": {func(a *approvals) {
			a.approve(a.sum())
			a.hold(stream.Sentinels, holds("s"))
		}, "", ""},
		"all, and then another": {func(a *approvals) {
			a.approve(a.sum())
			require.False(t, a.approve("other"))
		}, "", ""},
		"all, and then none": {func(a *approvals) {
			a.approve(a.sum())
			require.False(t, a.approve(""))
		}, "", ""},
	} {
		a := &approvals{held: map[stream.Collection]apply.Held{}}
		require.True(t, a.hold(stream.Deployments, holds("d")))
		require.True(t, a.hold(stream.Policies, holds("p")))
		require.False(t, a.hold(stream.Policies, holds("p")), "it is no news")
		test.approve(a)
		require.Equal(t, test.deployments, a.approved(stream.Deployments), name)
		require.Equal(t, test.policies, a.approved(stream.Policies), name)
		require.Empty(t, a.approved(stream.Sentinels), name)
	}
}
