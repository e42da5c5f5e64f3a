package agent //nolint:testpackage // what is kept and what is gone is decided within

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

func TestWhatWasSaidWronglyOfAServiceKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	const project, service = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	id := starbase.Identity{ProjectID: project, Environment: "production", ServiceID: service}
	own := labelled{hex32(project), "production", hex32(service)}
	shared, whole := labelled{project: hex32(project), environment: "production"}, labelled{project: hex32(project)}
	elsewhere := labelled{hex32(project), "staging", hex32(service)}

	var none absence
	for _, at := range []labelled{own, shared, whole, elsewhere, {}} {
		require.False(t, none.keeps(at))
		require.False(t, none.isGone(at))
	}

	var rejected absence
	rejected.reject(id)
	require.True(t, rejected.keeps(own))
	require.True(t, rejected.keeps(shared), "the policy that isolates it")
	require.True(t, rejected.keeps(whole), "the namespace it lives in")
	require.False(t, rejected.keeps(elsewhere))
	require.False(t, rejected.keeps(labelled{project: hex32(project), environment: "staging"}))

	var group absence
	group.rejectGroup(&starbase.VarGroup{ProjectID: project, Environment: "production"})
	require.True(t, group.keeps(shared), "the ConfigMap of the group")
	require.False(t, group.keeps(whole))
	require.False(t, group.keeps(own))

	var project1 absence
	project1.rejectProject(project)
	for _, at := range []labelled{own, shared, whole, elsewhere} {
		require.True(t, project1.keeps(at))
	}

	var gone absence
	gone.gone(id)
	require.True(t, gone.isGone(own))
	require.False(t, gone.isGone(elsewhere))
	require.False(t, gone.isGone(shared), "others may share it")
	require.False(t, gone.isGone(labelled{}), "an object without labels is nobody's")

	var dead absence
	dead.goneProject(project)
	for _, at := range []labelled{own, shared, whole, elsewhere} {
		require.True(t, dead.isGone(at))
	}
}
