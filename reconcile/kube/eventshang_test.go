package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// hanging is a server that keeps each other request until its client gives up.
type hanging struct {
	began time.Time
	sent  []string
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.sent = append(h.sent, fmt.Sprint(r.Method, " ", time.Since(h.began)))
	if len(h.sent)%2 == 1 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"namespace":"team","name":"e"}}`
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestAWriteThatHangsIsGivenUp: the Events that wait are written after ten seconds.
func TestAWriteThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, log := &hanging{began: time.Now()}, &bytes.Buffer{}
		client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: server})
		require.NoError(t, err)
		e := &kube.Events{Client: client, Logger: slog.New(slog.NewTextHandler(log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Start(ctx) }()
		record := func(note string) { e.Record(podKind, pod(), kube.EventNormal, "Moved", note) }
		record("lost")
		record("first")
		after(20 * time.Second)
		record("first") // its count is due a minute after the first
		after(55 * time.Second)
		record("second")
		after(10 * time.Second)
		cancel()
		require.NoError(t, <-ended)
		require.Equal(t, []string{"POST 0s", "POST 10s", "PATCH 1m10s", "POST 1m20s"}, server.sent)
		require.Equal(t, 2, strings.Count(log.String(), "event not recorded"))
	})
}
