package apply_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func job(ttl, image string) string {
	return `{apiVersion: batch/v1, kind: Job, metadata: {name: migration, namespace: NAMESPACE}, spec: {` + ttl +
		`template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/` + image + `}]}}}}`
}

// finishes plays the node on which the pod of the job ends.
func (b *bench) finishes(t *testing.T) {
	t.Helper()
	var pod string
	await.Eventually(t, "the job has a pod", func() bool {
		pod = b.kubectl(t, "get", "-n", b.ns, "pod", "-l", "job-name=migration", "-o", "jsonpath={.items[0].metadata.name}", "--ignore-not-found")
		return pod != ""
	})
	b.kubectl(t, "patch", "-n", b.ns, "pod", pod, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Succeeded"}}`)
}

func TestAJobThatItsTTLRemovedIsDone(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	jobs := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	a := b.startKinds(t, nil, jobs)
	waitSynced(t, a)
	absent := func() bool {
		_, err := a.Live.Get(apply.ID{Group: "batch", Kind: "Job", Namespace: b.ns, Name: "migration"})
		return err != nil
	}
	set := b.set(t, job("ttlSecondsAfterFinished: 3, ", "v1"))
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Created))
	b.finishes(t)
	await.Eventually(t, "its TTL removes the job", absent)
	a.net.Reset()
	for range 8 {
		require.Equal(t, 1, apply1(t, a, set).Unchanged)
		time.Sleep(100 * time.Millisecond)
	}
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
	a.net.NoRequests(t)
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, a.WaitReady(ready, set), "what depends on it may go on")

	changed := b.set(t, job("ttlSecondsAfterFinished: 3, ", "v2"))
	require.Equal(t, 1, apply1(t, a, changed).Count(apply.Created), "another desired state is another job")
	b.finishes(t)
	await.Eventually(t, "its TTL removes that job, too", absent)

	next := b.set(t, job("ttlSecondsAfterFinished: 600, ", "v3"))
	require.Equal(t, 1, apply1(t, a, next).Count(apply.Created))
	b.finishes(t)
	b.kubectl(t, "wait", "-n", b.ns, "--for=condition=Complete", "--timeout=3m", "job/migration")
	b.kubectl(t, "delete", "-n", b.ns, "job", "migration", "--cascade=foreground")
	await.Eventually(t, "the job is gone", absent)
	require.Equal(t, 1, apply1(t, a, next).Count(apply.Created), "a person removed it, to run it again")
}
