package agent_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

func TestTokensOnPlainHTTPAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log logtest.Log
	to := &url.URL{Scheme: "http", Host: "control.example.com"}
	a := agent.Agent{
		Config: config.Config{Control: config.Control{URL: to}, Vault: config.Vault{URL: to}}, Address: "127.0.0.1:0",
		Kubernetes: &rest.Config{Host: "http://127.0.0.1:1"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	_ = a.Start(ctx) // how it ends is of no matter
	require.Equal(t, 2, strings.Count(log.String(), "a token is sent without encryption"), log.String())
	require.Contains(t, log.String(), "setting=control.url")
	require.Contains(t, log.String(), "setting=vault.url")
}
