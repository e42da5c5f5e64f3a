package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

func localRegion(t *testing.T, dir string) cloud.Provider {
	t.Helper()
	region, err := Local{Dir: dir, Command: "sleep 1000"}.Open(t.Context(), LocalRegion, nil)
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
			Provider: batched(localRegion(t, dir)), Second: batched(localRegion(t, dir)), Config: localConfig(""), Other: other,
			UnknownID: "local-00000000000000000000000000000000", NoAddress: true,
		}
	})
}

// TestALocalMachineThatWasTerminatedIsListed has another process, which cannot know it.
func TestALocalMachineThatWasTerminatedIsListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, another := localRegion(t, dir), localRegion(t, dir)
	i, err := p.LaunchInstance(t.Context(), localConfig("a"))
	require.NoError(t, err)
	require.NoError(t, p.TerminateInstance(t.Context(), i.ID))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, cloud.Wait(ctx, p, i.ID, cloud.InstanceTerminated))
	list, err := p.ListInstances(t.Context(), i.Tags)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, cloud.InstanceTerminated, list[0].State)
	require.Equal(t, i.Tags, list[0].Tags)
	for _, empty := range []func() ([]cloud.Instance, error){
		func() ([]cloud.Instance, error) {
			return p.ListInstances(t.Context(), map[string]string{"owner": "another"})
		},
		func() ([]cloud.Instance, error) { return another.ListInstances(t.Context(), i.Tags) },
	} {
		list, err = empty()
		require.NoError(t, err)
		require.Empty(t, list)
	}
	require.ErrorIs(t, p.TerminateInstance(t.Context(), i.ID), cloud.ErrNotFound)
}
