package regions_test

import (
	"github.com/stretchr/testify/require"

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
