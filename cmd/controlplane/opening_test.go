package main_test

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"net/http"
	"os/exec"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// migrated gives the database the schema of this version, and returns a connection to it.
func migrated(t *testing.T, source string) *sql.DB {
	t.Helper()
	before, err := db.Open(t.Context(), source)
	require.NoError(t, err)
	require.NoError(t, before.Close())
	database, err := sql.Open("pgx", source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return database
}

// TestAStartWaitsForADatabaseThatHangs has a table locked, as by a migration or a dump, when the program starts.
func TestAStartWaitsForADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"controlplane_schema", "clusters"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			source := pgtest.NewDatabase(t)
			database := migrated(t, source)
			lock, err := database.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer lock.Rollback() //nolint:errcheck // it is over
			_, err = lock.ExecContext(t.Context(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)

			command := exec.CommandContext(t.Context(), binary(t), "--database", source, "--admin-token-file", writeFile(t, adminToken),
				"--metrics-bind-address", "127.0.0.1:0", "--listen", "127.0.0.1:0")
			command.Env, command.Dir = []string{}, t.TempDir()
			out, err := command.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, command.Start())
			defer command.Wait()         //nolint:errcheck // it was killed
			defer command.Process.Kill() //nolint:errcheck // it may have ended
			lines := bufio.NewScanner(out)
			var said []string
			until := func(message, purpose string) (address string) {
				t.Helper()
				for lines.Scan() {
					var line struct{ Msg, For, Address string }
					require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
					said = append(said, line.Msg)
					if line.Msg == message && line.For == purpose {
						return line.Address
					}
				}
				t.Fatalf("ended: %v", said)
				return ""
			}
			watch := time.AfterFunc(time.Minute, func() { _ = command.Process.Kill() })
			defer watch.Stop()
			address := until("listening", "start")
			require.Equal(t, []string{
				"starting", "waiting for the database: it cannot be reached, or another program has locked its tables", "listening",
			}, said)
			for path, want := range map[string]int{
				"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/api/v1/admin/clusters": http.StatusServiceUnavailable,
			} {
				status, answer := request(t, http.DefaultClient, http.MethodGet, "http://"+address+path, adminToken, "")
				require.Equal(t, want, status, "%s: %s", path, answer)
			}
			require.NoError(t, lock.Rollback())
			address = until("listening", "api")
			require.Contains(t, said, "database opened")
			status, answer := request(t, http.DefaultClient, http.MethodGet, "http://"+address+"/api/v1/admin/clusters", adminToken, "")
			require.Equal(t, http.StatusOK, status, answer)
		})
	}
}

// TestAProgramRefusesASchemaThatItDoesNotKnow has a newer version take something away from the schema.
func TestAProgramRefusesASchemaThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	source := pgtest.NewDatabase(t)
	database := migrated(t, source)
	_, err := database.ExecContext(t.Context(), `INSERT INTO controlplane_schema (version) SELECT max(version) + 1 FROM controlplane_schema`)
	require.NoError(t, err)
	ended := execute(t, binary(t), []string{}, "--database", source, "--admin-token-file", writeFile(t, adminToken),
		"--metrics-bind-address", "127.0.0.1:0", "--listen", "127.0.0.1:0")
	require.NotZero(t, ended.code)
	require.Contains(t, ended.stderr, "written by a newer version")
	require.Contains(t, ended.stderr, ": run the newer version or choose another ")
}
