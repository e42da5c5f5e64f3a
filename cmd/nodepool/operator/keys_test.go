package operator //nolint:testpackage // the labels of a Node are one contract with the API

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

func TestNodesAreMarkedAsTheAPIStates(t *testing.T) {
	t.Parallel()
	d := nodes.Domain(v1alpha1.Group)
	require.Equal(t, v1alpha1.LabelPool, d.PoolLabel())
	require.Equal(t, v1alpha1.LabelState, d.StateLabel())
	require.Equal(t, v1alpha1.AnnotationAttested, d.AttestedAnnotation())
	require.Equal(t, v1alpha1.TaintStandby, d.StandbyTaint().Key)
	require.Equal(t, v1alpha1.TaintNotReady, d.NotReadyTaint().Key)
}
