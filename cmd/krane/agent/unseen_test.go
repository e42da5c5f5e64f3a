package agent //nolint:testpackage // the API server is one without the kinds

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestAKindThatTheClusterDoesNotServeIsReportedWithWhatToInstall has a cluster without Cilium, and an account
// without its rights to ReplicaSets.
func TestAKindThatTheClusterDoesNotServeIsReportedWithWhatToInstall(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusInternalServerError // what passes
		switch {
		case strings.Contains(r.URL.Path, "cilium"):
			status = http.StatusNotFound
		case strings.Contains(r.URL.Path, "replicasets"):
			status = http.StatusForbidden
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`,
			map[int]string{404: "NotFound", 403: "Forbidden", 500: "InternalError"}[status], status)
	}))
	defer server.Close()
	client, err := clientmetadata.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	ps := newParts(client, nil, "eu", slog.New(slog.DiscardHandler), none, none)
	p := newProblems(ps.unseen())
	require.Empty(t, p.report(), "nothing is known yet")
	ctx, stop := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	defer lives.Wait()
	defer stop()
	for _, c := range components() {
		lives.Go(func() { _ = ps[c].live.Start(ctx) })
	}
	await.Until(t, 30*time.Second, "both are reported", func() bool { return len(p.report()) == 2 })
	p.set("deployments/ws/web", "no")
	said := map[string]string{}
	for _, problem := range p.report() {
		said[problem.GetResource()] = problem.GetMessage()
	}
	require.Len(t, said, 3)
	require.Contains(t, said["CiliumNetworkPolicy.cilium.io"], "does not serve this kind: install Cilium")
	require.Contains(t, said["ReplicaSet.apps"], "the agent may not see")
}

// none takes no notice of an object.
func none(render.Component, apply.ID) {}
