package main_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// bills is a batch of records, as many as one takes, of one instant.
func bills(t *testing.T, at time.Time) []json.RawMessage {
	t.Helper()
	batch := make([]json.RawMessage, starbase.MaxSnapshots)
	for n := range batch {
		s := starbase.Snapshot{
			WorkspaceID: otherID, ProjectID: otherID, Environment: "production", ServiceID: otherID, PodID: fmt.Sprintf("pod-%d", n),
			Phase: "Running", ClusterID: clusterID, SnapshotTimestamp: at.UTC().Format(time.RFC3339),
		}
		s.SnapshotID = s.ID()
		text, err := json.Marshal(s)
		require.NoError(t, err)
		batch[n] = text
	}
	return batch
}

// TestARecordIsStoredOnceWhenAReplicaIsKilledInItsBatch is D30: one of two replicas on a
// PostgreSQL is killed, as by kill -9, while it stores a batch, and the batch is sent to
// the other one.
func TestARecordIsStoredOnceWhenAReplicaIsKilledInItsBatch(t *testing.T) {
	url := pgtest.NewDatabase(t)
	program, token := binary(t), writeFile(t, adminToken)
	start := func() *process {
		return serveProcess(
			t,
			program,
			"--listen",
			"127.0.0.1:0",
			"--metrics-bind-address",
			"127.0.0.1:0",
			"--database",
			url,
			"--admin-token-file",
			token,
		)
	}
	survivor := start()
	status, body := request(
		t,
		http.DefaultClient,
		http.MethodPut,
		"http://"+survivor.address+"/api/v1/admin/clusters/"+clusterID,
		adminToken,
		`{"region":"nyc3"}`,
	)
	require.Equal(t, http.StatusCreated, status, body)
	var created struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(body), &created))
	send := func(ctx context.Context, p *process, batch []json.RawMessage) (snapshot.Receipt, error) {
		sink := &snapshot.HTTPSink{
			URL:    "http://" + p.address + "/api/v1/clusters/" + clusterID + "/snapshots",
			Member: "snapshots",
			Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			Authorize: func(r *http.Request) error {
				r.Header.Set("Authorization", "Bearer "+created.Token)
				return nil
			},
		}
		return sink.Send(ctx, batch)
	}

	begin, rounds, killed := time.Now().Truncate(time.Minute).Add(-time.Hour), 0, 0
	for ; killed < 3 && rounds < 30; rounds++ {
		batch := bills(t, begin.Add(time.Duration(rounds)*time.Minute))
		victim := start()
		time.AfterFunc(time.Duration(5+rand.IntN(150))*time.Millisecond, func() { _ = victim.command.Process.Kill() }) //nolint:gosec // a test
		_, err := send(t.Context(), victim, batch)
		if err != nil {
			killed++
		}
		receipt, err := send(t.Context(), survivor, batch)
		require.NoError(t, err)
		require.Equal(t, starbase.MaxSnapshots, receipt.Accepted+receipt.Duplicates)
		require.Contains(t, []int{0, starbase.MaxSnapshots}, receipt.Accepted, "a batch is stored whole or not at all")
		<-victim.ended
	}
	require.Equal(t, 3, killed)
	pool, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer pool.Close()
	var rows int
	require.NoError(t, pool.QueryRowContext(t.Context(), `SELECT count(*) FROM snapshots`).Scan(&rows))
	require.Equal(t, rounds*starbase.MaxSnapshots, rows)
}

// TestWhatWasUsedIsKeptAsLongAsTheFlagsSay starts the program on a database with a record and a sum that are
// older than its flags say, and which the flags of before have kept.
func TestWhatWasUsedIsKeptAsLongAsTheFlagsSay(t *testing.T) {
	url := pgtest.NewDatabase(t)
	program, token := binary(t), writeFile(t, adminToken)
	start := func(flags ...string) {
		serveProcess(t, program, append([]string{
			"--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0", "--database", url, "--admin-token-file", token,
		}, flags...)...)
	}
	start()
	pool, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer pool.Close()
	today := time.Now().UTC().Truncate(24 * time.Hour)
	count := func(table string) (rows int) {
		require.NoError(t, pool.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows))
		return rows
	}
	await.Eventually(t, "each day has its partition", func() bool {
		return count(`pg_inherits WHERE inhparent = 'snapshots'::regclass`) == 11
	})
	for days, name := range map[int]string{-1: "kept", -5: "old"} {
		at := today.AddDate(0, 0, days).UnixMilli()
		_, err = pool.ExecContext(t.Context(), `INSERT INTO snapshots (snapshot_id, cluster_id, workspace_id, project_id, environment, service_id,
			pod_id, tier, phase, taken_at, cpu_millis, memory_bytes, received_at, summed)
			VALUES ($1, 'c', 'w', 'p', 'e', 's', 'p', '', 'Running', $2, 1, 1, 1, 1)`,
			name, at)
		require.NoError(t, err)
		_, err = pool.ExecContext(t.Context(), `INSERT INTO usage_days VALUES ($1, 'c', 'w', 'p', 'e', 's', 'Running', 1, 1, 1, 1)`, at)
		require.NoError(t, err)
	}
	start("--snapshot-retention", "48h", "--usage-retention", "10000h")
	await.Eventually(t, "the old record goes", func() bool { return count("snapshots") == 1 })
	require.Equal(t, 2, count("usage_days"), "the sums stay")
	start("--usage-retention", "72h")
	await.Eventually(t, "the old sum goes", func() bool { return count("usage_days") == 1 })
}
