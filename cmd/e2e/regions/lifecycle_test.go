package regions_test

import (
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// lifecycle is D1 and D3 in small: desired resources run and are reported, and archived ones
// are deleted and reported as deleted.
func lifecycle(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	b.want("2", "web")
	b.running("2", "web")
	b.archive("api")
	await.Eventually(t, "api is gone, and reported so", func() bool { return b.gone("api") })
	b.want("2", "api")
	b.running("2", "web", "api")
	b.archive("web")
	await.Eventually(t, "web is gone, and reported so", func() bool { return b.gone("web") })
	await.Eventually(t, "nothing is owed", func() bool { return w.metric("unreported_deletions") == 0 })
	require.NotEmpty(t, w.deletes())
	require.Empty(t, b.misjudged())
	b.judges()
}

// stubborn has a deployment whose pod ignores its deletion. The ingress policy stays until the pod is gone.
func stubborn(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = 2 * time.Second
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	pods := b.kube.CoreV1().Pods(b.name)
	finalizers := func(value string) (pod string) {
		t.Helper()
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "unkey.com/deployment.id=d_web"})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		pod = list.Items[0].Name
		_, err = pods.Patch(t.Context(), pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+value+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		return pod
	}
	pod := finalizers(`["example.com/stubborn"]`)
	b.archive("web")
	await.Eventually(t, "it is reported as gone", func() bool { return b.replicaSet("web") == nil && len(b.stored("web").Instances) == 0 })
	w.synced(2, func() {})
	w.stop()
	w.start()
	w.synced(2, func() {})
	found, err := pods.Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, found.DeletionTimestamp)
	require.Contains(t, b.policies(), "web-frontline-ingress", "its pod may still run")
	finalizers("null")
	await.Eventually(t, "its policy follows it", func() bool { return b.gone("web") })

	b.want("2", "web")
	b.running("2", "web")
	finalizers(`["example.com/stubborn"]`)
	b.archive("web")
	await.Eventually(t, "it goes", func() bool { return b.replicaSet("web") == nil })
	b.want("3", "web")
	w.synced(2, func() {})
	require.Nil(t, b.replicaSet("web"), "the one before it is still there")
	finalizers("null")
	b.running("3", "web")
	require.Contains(t, b.policies(), "web-frontline-ingress")

	pod = finalizers(`["example.com/stubborn"]`)
	before, background := b.replicaSet("web").UID, metav1.DeletePropagationBackground
	require.NoError(t, b.kube.AppsV1().ReplicaSets(b.name).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &background}))
	await.Eventually(t, "what a person has deleted is back", func() bool {
		runs := false
		for _, i := range b.stored("web").Instances {
			runs = runs || i.Name != pod && i.Status == "running"
		}
		set := b.replicaSet("web")
		return runs && set != nil && set.UID != before
	})
	b.archive("web")
	await.Eventually(t, "it goes", func() bool { return b.replicaSet("web") == nil && len(b.stored("web").Instances) == 0 })
	w.synced(3, func() {})
	require.Contains(t, b.policies(), "web-frontline-ingress", "a pod of the ReplicaSet before runs")
	require.Equal(t, pod, finalizers("null"))
	await.Eventually(t, "its policy follows it", func() bool { return b.gone("web") })

	b.want("4", "web")
	b.running("4", "web")
	w.stop()
	orphan := metav1.DeletePropagationOrphan
	require.NoError(t, b.kube.AppsV1().ReplicaSets(b.name).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	b.archive("web")
	await.Eventually(t, "its pods have no owner", func() bool { return b.replicaSet("web") == nil })
	w.start()
	w.synced(3, func() {})
	require.Contains(t, b.policies(), "web-frontline-ingress", "a pod without a ReplicaSet runs")
	require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	await.Eventually(t, "its policy follows it", func() bool { return b.gone("web") })
}

// judges checks what counts as a wrong deletion: api is wanted, web is not.
func (b *bench) judges() {
	b.t.Helper()
	for _, c := range []struct {
		request applytest.Request
		wrong   bool
	}{
		{applytest.Request{Verb: "delete", Resource: "replicasets", Namespace: b.name, Name: "api"}, true},
		{applytest.Request{Verb: "delete", Resource: "secrets", Namespace: b.name, Name: "deploy-d-api"}, true},
		{applytest.Request{Verb: "delete", Resource: "ciliumnetworkpolicies", Namespace: b.name, Name: "api-frontline-ingress"}, true},
		{applytest.Request{Verb: "deletecollection", Resource: "secrets", Namespace: b.name}, true},
		{applytest.Request{Verb: "delete", Resource: "namespaces", Name: b.name}, true},
		{applytest.Request{Verb: "delete", Resource: "replicasets", Namespace: b.name, Name: "web"}, false},
		{applytest.Request{Verb: "patch", Resource: "replicasets", Namespace: b.name, Name: "api"}, false},
	} {
		b.mu.Lock()
		clear(b.again)
		b.mu.Unlock()
		b.judge(c.request)
		require.Equal(b.t, c.wrong, len(b.misjudged()) > 0, c.request.String())
		b.mu.Lock()
		b.wrong = nil
		b.mu.Unlock()
	}
}
