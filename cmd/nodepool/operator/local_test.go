package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

func localRegion(t *testing.T, dir string) cloud.Provider {
	t.Helper()
	region, err := operator.Local{Dir: dir, Command: "sleep 1000"}.Open(t.Context(), operator.LocalRegion, nil)
	require.NoError(t, err)
	return region.Provider
}

func localConfig(token string) cloud.LaunchConfig {
	return cloud.LaunchConfig{Token: token, ImageID: "ami-local", InstanceType: "m5.large", Tags: map[string]string{"owner": "test"}}
}

// TestLocalConforms is also for the calls for many machines, which become one for each.
func TestLocalConforms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Subject {
		t.Helper()
		other := localConfig("")
		other.InstanceType = "m5.xlarge"
		return cloudtest.Subject{
			Provider: cloud.Batched(localRegion(t, dir), 0), Second: cloud.Batched(localRegion(t, dir), 0), Config: localConfig(""), Other: other,
			UnknownID: "local-00000000000000000000000000000000", NoAddress: true,
		}
	})
}
