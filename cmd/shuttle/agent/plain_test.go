package agent_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

func TestATokenOnPlainHTTPIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := environment(t)
	env["STARFORM_STARBASE_URL"], env["STARFORM_METRICS_ADDR"] = "http://starbase.example.com", "127.0.0.1:0"
	_, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.EqualError(t, err, `STARFORM_STARBASE_URL: is "http://starbase.example.com", must be a URL of https, or of http on this machine: `+
		"the token is not encrypted; STARFORM_ALLOW_HTTP=true allows it")
	env["STARFORM_ALLOW_HTTP"] = "1"
	config, err := shuttle.ReadConfig(func(name string) string { return env[name] })
	require.NoError(t, err)
	var log logtest.Log
	a := shuttle.Agent{Config: config, Kubernetes: &rest.Config{Host: "http://127.0.0.1:1"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_ = a.Start(ctx) // how it ends is of no matter
	require.Equal(t, 1, strings.Count(log.String(), "a token is sent without encryption"), log.String())
	require.Contains(t, log.String(), "setting=STARFORM_STARBASE_URL")
}
