package clusters_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

// filled returns the path of a closed database with some thousand rows.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trueup.db")
	store := openStore(t, path)
	for i := range 300 {
		_, _, err := store.RegisterCluster(t.Context(), fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i), "nyc3")
		require.NoError(t, err)
	}
	require.NoError(t, store.Database.Close())
	return path
}

// raw opens the file past the store.
func raw(t *testing.T, path string, statements ...string) *sql.DB {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	file.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = file.Close() })
	for _, statement := range statements {
		_, err := file.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return file
}

func TestADatabaseIsOpenedAgainWithWhatItHad(t *testing.T) {
	t.Parallel()
	path := filled(t)
	clusters, err := openStore(t, path).Clusters(t.Context())
	require.NoError(t, err)
	require.Len(t, clusters, 300)
	require.NoError(t, raw(t, path).QueryRowContext(t.Context(), "SELECT count(*) FROM clusters").Err())
}

func TestTheDatabaseUsesAWriteAheadLogAndItsOwnMark(t *testing.T) {
	t.Parallel()
	path := filled(t)
	file := raw(t, path)
	migrations, err := filepath.Glob("../db/migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, migrations)
	migrations = slices.DeleteFunc(migrations, func(name string) bool { return strings.HasSuffix(name, ".postgresql.sql") })
	for query, want := range map[string]string{"PRAGMA journal_mode": "wal", "PRAGMA user_version": strconv.Itoa(len(migrations)), "PRAGMA application_id": "1414681936"} {
		var got string
		require.NoError(t, file.QueryRowContext(t.Context(), query).Scan(&got))
		require.Equal(t, want, got, query)
	}
}

func TestTokensAreKeptOnlyAsHashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var kept string
	require.NoError(t, raw(t, w.path).QueryRowContext(t.Context(), "SELECT token_hash FROM clusters WHERE id = ?", clusterA).Scan(&kept))
	sum := sha256.Sum256([]byte(w.tokens[clusterA]))
	require.Equal(t, hex.EncodeToString(sum[:]), kept)
	files, err := filepath.Glob(w.path + "*")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(content), w.tokens[clusterA], file)
	}
}

func TestWhileAnotherProcessHoldsTheLockReadsGoOnAndWritesAreToldToRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	lock := raw(t, w.path, "BEGIN IMMEDIATE")
	require.EqualValues(t, 3, w.pull(clusterA).Generation, "agents are still served")
	got := w.admin("PUT", servicePath, strings.Replace(serviceBody, "shop:1", "shop:2", 1))
	require.Equal(t, 503, got.status, got.body)
	require.Equal(t, "busy", got.failure(t).Code)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	_, err := lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.EqualValues(t, 4, w.must("PUT", servicePath, strings.Replace(serviceBody, "shop:1", "shop:2", 1)))
}

func TestTwoProcessesOnOneFileWaitForEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trueup.db")
	stores := []*clusters.Store{openStore(t, path), openStore(t, path)}
	_, _, err := stores[0].RegisterCluster(t.Context(), clusterA, "nyc3")
	require.NoError(t, err)
	const each = 50
	var group sync.WaitGroup
	for i, store := range stores {
		group.Go(func() {
			for n := range each {
				_, err := store.PutProject(t.Context(), fmt.Sprintf("33333333-3333-4333-8333-%06d%06d", i, n), clusters.Project{
					ClusterID: clusterA, WorkspaceID: workspace, WorkspaceSlug: "acme", Slug: "shop",
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	state, err := stores[0].DesiredState(t.Context(), clusterA)
	require.NoError(t, err)
	require.EqualValues(t, 1+2*each, state.Generation)
	require.Len(t, state.Projects, 2*each)
}

func TestAClosedDatabaseIsAnErrorAndNeverAnEmptyState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seed()
	require.NoError(t, w.store.Database.Close())
	got := w.do("GET", statePath(clusterA), w.tokens[clusterA], "")
	require.Equal(t, 500, got.status)
	require.Equal(t, "internal", got.failure(t).Code)
	require.NotContains(t, got.body, "sql", "the client is not told about the inside")
	require.Contains(t, w.log.String(), "request failed")
	require.Error(t, w.store.Database.Ping(t.Context()))
}
