package agent //nolint:testpackage // what is replaced is decided within

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// TestOnlyTheAutoscalerOfAServiceThatStatesItsReplicasIsReplaced: what else is absent has its grace.
func TestOnlyTheAutoscalerOfAServiceThatStatesItsReplicasIsReplaced(t *testing.T) {
	t.Parallel()
	deployment := apply.ID{Group: "apps", Kind: "Deployment", Namespace: "proj-shop", Name: "web"}
	autoscaler, service := autoscalerOf(deployment), apply.ID{Kind: "Service", Namespace: "proj-shop", Name: "web"}
	stated := func(apiVersion, kind string) *unstructured.Unstructured {
		return newObject(apiVersion, kind, "proj-shop", "web", map[string]any{}, object{"spec": object{}})
	}
	set := func(objects ...*unstructured.Unstructured) *apply.Set {
		s, err := newSet(Owner(passing), objects)
		require.NoError(t, err)
		return s
	}
	replicas := set(stated("apps/v1", "Deployment"))
	require.True(t, replaced(replicas, autoscaler))
	require.False(t, replaced(replicas, service), "another object of its name")
	other := autoscaler
	other.Namespace = "proj-other"
	require.False(t, replaced(replicas, other))
	require.False(t, replaced(set(), autoscaler), "its service is absent, too")
	require.False(t, replaced(set(stated("apps/v1", "Deployment"), stated("autoscaling/v2", "HorizontalPodAutoscaler")), autoscaler))
}

// TestAServiceIsJudgedByTheDeploymentThatWasWritten, and not by a rollout of before.
func TestAServiceIsJudgedByTheDeploymentThatWasWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasses(t)
		p.accept(p.state(1, "web"))
		p.pass()
		p.pass()
		require.Len(t, p.status.last.written, 1)
		for n, w := range p.status.last.written {
			require.EqualValues(t, "deployments/"+n.Namespace+"/"+n.Name, w.uid)
			require.EqualValues(t, 1, w.generation)
		}
	})
}
