package agent //nolint:testpackage // what pods say is not exported

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// running is a pod of the shop whose container runs that image.
func running(uid, image, imageID string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "web-" + uid, "namespace": "proj-shop", "uid": uid, "labels": object{
			labelProjectID: hex32(shop.ProjectID), labelEnvironment: shop.Environment, labelServiceID: hex32(shop.ServiceID),
		}},
		"status": object{"phase": "Running", "containerStatuses": []any{
			object{"name": "sidecar", "imageID": "sha256:sidecar", "state": object{"running": object{}}},
			object{"name": "main", "image": image, "imageID": imageID, "state": object{"running": object{}}},
		}},
	}}
}

// TestTheDigestThatRunsIsReported is the image_digest of D4: one that all pods agree on.
func TestTheDigestThatRunsIsReported(t *testing.T) {
	t.Parallel()
	v := newPodView(nil, nil, time.Minute, newMetrics(), slog.New(slog.DiscardHandler))
	news := 0
	v.Changed = func(starbase.Identity) { news++ }
	r := reporter{pods: v, rollouts: &rollouts{}}
	digest := func() string {
		list, _ := r.statuses(outcomeOf(deletions{}))
		require.Len(t, list, 1)
		return list[0].ImageDigest
	}
	require.Empty(t, digest())
	first := running("a", "example.com/web:1", "example.com/web@sha256:one")
	require.NoError(t, listPods(v, first))
	require.Equal(t, "sha256:one", digest())
	require.Equal(t, 1, news)

	second := running("b", "example.com/web:2", "sha256:two")
	require.NoError(t, putPod(v, second))
	require.Empty(t, digest(), "a rollout is under way")
	require.NoError(t, v.Drop(first))
	require.Equal(t, "sha256:two", digest())
	require.Equal(t, 3, news)
	require.NoError(t, putPod(v, second))
	require.Equal(t, 3, news, "nothing new runs")

	for i, image := range []struct{ image, id, want string }{
		{"example.com/web@sha256:three", "", "sha256:three"}, // a runtime that does not say it
		{"example.com/web:3", "", ""},
		{"example.com/web:3", "docker-pullable://example.com/web@sha256:four", "sha256:four"},
	} {
		require.NoError(t, listPods(v, running(fmt.Sprint(i), image.image, image.id)))
		require.Equal(t, image.want, digest())
	}
	waiting := running("c", "example.com/web:4", "sha256:five")
	require.NoError(
		t,
		unstructured.SetNestedSlice(
			waiting.Object,
			[]any{object{"name": "main", "imageID": "sha256:five", "state": object{"waiting": object{}}}},
			"status",
			"containerStatuses",
		),
	)
	require.NoError(t, listPods(v, waiting))
	require.Empty(t, digest(), "it does not run yet")
	require.Equal(t, map[starbase.Identity]string{}, v.digests())
}
