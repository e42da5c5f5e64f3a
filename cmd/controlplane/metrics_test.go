package main_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// TestTheMetricsAreThoseOfTheList has the metrics of each part, also of those that have no
// series yet, and compares them with what the program itself serves.
func TestTheMetricsAreThoseOfTheList(t *testing.T) {
	registry, logger := program.NewRegistry("controlplane"), slog.New(slog.DiscardHandler)
	log := &sqlstore.Store{}
	database := &db.Database{Log: log}
	_, err := guard.New(guard.Config{Registerer: registry})
	require.NoError(t, err)
	_, err = usage.NewFailures(registry)
	require.NoError(t, err)
	_, err = audit.NewFailures(registry)
	require.NoError(t, err)
	_, err = limits.New(limits.Config{Registerer: registry})
	require.NoError(t, err)
	_, err = clusters.New(clusters.Config{Store: &clusters.Store{Database: database}, Admins: tokens.Only(adminToken), Registerer: registry})
	require.NoError(t, err)
	_, err = regions.New(regions.Config{Database: database, Feed: &statesync.Server{Log: log}, Registerer: registry})
	require.NoError(t, err)
	_, err = statuspage.New(statuspage.Config{Database: database, Admins: tokens.Only(adminToken), Registerer: registry})
	require.NoError(t, err)
	require.NoError(t, (&regions.Reconciler{Registerer: registry}).Register())
	require.NoError(t, registry.Register(regions.NewLogMetrics(log, logger)))
	metrictest.Check(t, "controlplane", registry)

	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken))
	_, scraped := request(t, http.DefaultClient, http.MethodGet, "http://"+p.metrics+"/metrics", "", "")
	listed, err := os.ReadFile(metrictest.File(t, "controlplane"))
	require.NoError(t, err)
	known := map[string]bool{}
	for line := range strings.SplitSeq(string(listed), "\n") {
		name, _, _ := strings.Cut(line, " ")
		known[name] = true
	}
	own := 0
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(scraped, -1) {
		if name := found[1]; !strings.HasPrefix(name, "go_") {
			require.True(t, known[name], "%s is served, and not in the list", name)
			own++
		}
	}
	require.Greater(t, own, 20)
	require.Regexp(t, `(?m)^trueup_controlplane_build_info\{goversion="go1[^"]*",revision="[^"]+",version="[^"]+"\} 1$`, scraped)
	require.Contains(t, scraped, "trueup_controlplane_log_queue_depth 0\n")
	require.Contains(t, scraped, `trueup_controlplane_credentials_refused_total{endpoint="admin",reason="invalid"} 0`)
	require.Contains(t, scraped, `trueup_controlplane_clusters{contact="never"} 0`)
	require.NoError(t, p.command.Process.Kill())
	<-p.ended
}
