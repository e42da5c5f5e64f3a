package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// TestAScopeOwnsWhatCarriesAllItsTags: a machine of another cluster may have the UID of the pool, as a restored
// cluster has the UIDs of the saved one.
func TestAScopeOwnsWhatCarriesAllItsTags(t *testing.T) {
	t.Parallel()
	require.True(t, scope.Owns(cloud.Instance{Tags: scope.LaunchTags("op", nil)}))
	for tag, value := range map[string]string{"stratos.sh/cluster": "other", "stratos.sh/pool-uid": "other", "managed-by": "other"} {
		tags := scope.LaunchTags("op", nil)
		require.Contains(t, tags, tag)
		tags[tag] = value
		require.False(t, scope.Owns(cloud.Instance{Tags: tags}), tag)
		delete(tags, tag)
		require.False(t, scope.Owns(cloud.Instance{Tags: tags}), tag)
	}
	tags := map[string]string{"managed-by": "stratos", "stratos.sh/cluster": "c"}
	require.False(t, cloud.Scope{Domain: "stratos.sh", Cluster: "c"}.Owns(cloud.Instance{Tags: tags}), "a scope without the UID owns nothing")
}
