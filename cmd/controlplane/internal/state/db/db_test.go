package db_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// filled returns the path of a closed database with some hundred rows.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trueup.db")
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
		for n := range 600 {
			if _, err := tx.ExecContext(t.Context(), insert, fmt.Sprint(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, database.Close())
	return path
}

const insert = `INSERT INTO clusters (id, region, token_hash, epoch, generation, lb_size_units, created_at)
	VALUES (?, 'nyc3', CAST(random() AS TEXT), 'e', 1, 1, 1)`

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

func requireNotOpened(t *testing.T, path string, condition error, advice string) {
	t.Helper()
	_, err := db.SQLite{Path: path, BusyTimeout: 200 * time.Millisecond}.Open(t.Context())
	require.ErrorIs(t, err, condition)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, advice)
	require.NotContains(t, err.Error(), "\n")
}

func TestAForeignDatabaseIsLeftAlone(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.db")
	require.NoError(t, raw(t, other, "CREATE TABLE clusters (id TEXT)").Close())
	marked := filepath.Join(t.TempDir(), "marked.db")
	require.NoError(t, raw(t, marked, "PRAGMA application_id = 7").Close())
	letter := filepath.Join(t.TempDir(), "letter.txt")
	require.NoError(t, os.WriteFile(letter, []byte(strings.Repeat("Dear Sir, ", 1000)), 0o600))
	for _, path := range []string{other, marked, letter} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		requireNotOpened(t, path, db.ErrForeign, "choose another file")
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), "%s was changed", path)
	}
}

func TestADatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	path := filled(t)
	require.NoError(t, raw(t, path, "PRAGMA user_version = 99").Close())
	requireNotOpened(t, path, db.ErrNewerSchema, "run the newer version")
}

// opener opens one database again and again, as programs with other migrations do.
type opener func(fs.FS) (*db.Database, error)

func openers(t *testing.T) map[string]opener {
	t.Helper()
	path, url := filepath.Join(t.TempDir(), "trueup.db"), pgtest.NewDatabase(t)
	return map[string]opener{
		"SQLite": func(known fs.FS) (*db.Database, error) { return db.SQLite{Path: path}.Knowing(known).Open(t.Context()) },
		"PostgreSQL": func(known fs.FS) (*db.Database, error) {
			return db.PostgreSQL{URL: url}.Knowing(known).Open(t.Context())
		},
	}
}

// later returns the migrations of a later version of this program.
func later(t *testing.T, more ...string) fs.FS {
	t.Helper()
	all := fstest.MapFS{}
	names, err := fs.Glob(db.Migrations(), "migrations/*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(db.Migrations(), name)
		require.NoError(t, err)
		all[name] = &fstest.MapFile{Data: text}
	}
	for n, text := range more {
		all[fmt.Sprintf("migrations/9%03d.sql", n)] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// TestAnEditedMigrationIsNoticed: a number alone does not say what was made.
func TestAnEditedMigrationIsNoticed(t *testing.T) {
	first := "-- expands\nALTER TABLE clusters ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';"
	edited := "-- expands\nALTER TABLE clusters ADD COLUMN shade TEXT NOT NULL DEFAULT 'none';"
	for name, open := range openers(t) {
		t.Run(name, func(t *testing.T) {
			database, err := open(later(t, first))
			require.NoError(t, err)
			require.NoError(t, database.Close())
			for _, more := range [][]string{{edited}, {edited, "-- expands\nCREATE TABLE colours (id TEXT NOT NULL PRIMARY KEY);"}} {
				_, err = open(later(t, more...))
				require.ErrorIs(t, err, db.ErrOtherSchema)
				require.ErrorContains(t, err,
					"up to migrations/9000.sql it was made by another text: run the version that made it, or put all into a new")
			}
			database, err = open(later(t))
			require.NoError(t, err, "what it knows is as it was")
			require.NoError(t, database.Close())
		})
	}
}

// TestAProgramUsesANewerSchemaThatOnlyAdds goes forth and back: what the newer program wrote is
// there after each step, and the older one neither takes its tables away nor forgets that they
// are there.
func TestAProgramUsesANewerSchemaThatOnlyAdds(t *testing.T) {
	first := "-- expands\nALTER TABLE clusters ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';"
	second := "-- expands\nCREATE TABLE colours (id TEXT NOT NULL PRIMARY KEY);"
	last := "ALTER TABLE clusters DROP COLUMN colour;"
	now, next, afterNext := later(t), later(t, first), later(t, first, second)
	contracted := later(t, first, second, last)
	for name, open := range openers(t) {
		t.Run(name, func(t *testing.T) {
			inserted := 0
			use := func(known fs.FS, statements ...string) {
				t.Helper()
				database, err := open(known)
				require.NoError(t, err)
				require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
					inserted++
					_, err := tx.ExecContext(t.Context(), insert, fmt.Sprint(inserted))
					for _, statement := range statements {
						if err == nil {
							_, err = tx.ExecContext(t.Context(), statement)
						}
					}
					return err
				}))
				var count int
				require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
					return tx.QueryRowContext(t.Context(), `SELECT count(*) FROM clusters`).Scan(&count)
				}))
				require.Equal(t, inserted, count)
				require.NoError(t, database.Close())
			}
			use(now)
			use(next, `UPDATE clusters SET colour = 'red'`)
			use(now)
			use(next, `UPDATE clusters SET colour = 'blue' WHERE colour = 'none'`)
			use(afterNext, `INSERT INTO colours VALUES ('red')`)
			use(next)
			use(now)
			use(afterNext, `DELETE FROM colours WHERE id = 'red'`)
			use(contracted)
			for _, known := range []fs.FS{now, next, afterNext} {
				_, err := open(known)
				require.ErrorIs(t, err, db.ErrNewerSchema)
				require.ErrorContains(t, err, "run the newer version")
			}
			use(contracted, `DELETE FROM colours`)
		})
	}
}

// TestAMigrationThatDeadlocksIsRepeated has a replica that serves lock in another order than the migration
// of a newer one beside it, which is then the one that PostgreSQL undoes.
func TestAMigrationThatDeadlocksIsRepeated(t *testing.T) {
	t.Parallel()
	for range 10 {
		if migrationIsUndone(t) {
			return
		}
	}
	require.Fail(t, "each time the other transaction was undone")
}

// migrationIsUndone makes a deadlock of a migration and another transaction. It reports whether PostgreSQL
// undid the migration: that is the other one if more than a second is between the beginnings of their waits.
func migrationIsUndone(t *testing.T) bool {
	t.Helper()
	source := db.PostgreSQL{URL: pgtest.NewDatabase(t)}
	old, err := source.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, old.Close()) })
	migrated, calls := make(chan error, 1), 0
	require.NoError(t, old.Write(t.Context(), func(tx *db.Tx) error {
		calls++
		if calls > 1 {
			return nil
		}
		if _, err := tx.ExecContext(t.Context(), `UPDATE regions SET name = name`); err != nil {
			return err
		}
		go func() {
			newer, err := source.Knowing(later(t, "-- expands\nALTER TABLE clusters ADD COLUMN colour TEXT NOT NULL DEFAULT '';\n"+
				"ALTER TABLE regions ADD COLUMN colour TEXT NOT NULL DEFAULT '';")).Open(t.Context())
			if err == nil {
				err = newer.Close()
			}
			migrated <- err
		}()
		const waits = `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database WHERE NOT granted AND datname = current_database()`
		for n := 0; n == 0; {
			select {
			case err := <-migrated:
				return fmt.Errorf("the migration did not wait for the lock: %w", err)
			default:
			}
			if err := tx.QueryRowContext(t.Context(), waits).Scan(&n); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(t.Context(), `UPDATE clusters SET region = region`)
		return err
	}))
	require.NoError(t, <-migrated)
	return calls == 1
}

// TestAMigrationThatSaysSoOnlyAdds looks at each statement of the migrations with the line
// "-- expands", and at some that lie.
func TestAMigrationThatSaysSoOnlyAdds(t *testing.T) {
	adds := regexp.MustCompile(
		`(?is)^(CREATE TABLE \w+ \(.*\)|CREATE INDEX \w+ ON .*|ALTER TABLE \w+ ADD COLUMN \w+ \w+( (NOT NULL )?DEFAULT \S+| NULL)?)$`,
	)
	fills := regexp.MustCompile(`(?is)^UPDATE (\w+) SET (\w+) = [^=]+( WHERE .*)?$`) // of a column that it has added
	onlyAdds := func(text string) bool {
		if !strings.HasPrefix(text, "-- expands\n") {
			return true
		}
		for statement := range strings.SplitSeq(regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(text, ""), ";") {
			statement = strings.TrimSpace(statement)
			filled := fills.FindStringSubmatch(statement)
			switch {
			case statement == "", adds.MatchString(statement):
			case filled != nil && strings.Contains(text, "\nALTER TABLE "+filled[1]+" ADD COLUMN "+filled[2]+" "):
			default:
				return false
			}
		}
		return true
	}
	names, err := fs.Glob(db.Migrations(), "migrations/*.sql")
	require.NoError(t, err)
	// A constraint that refuses less takes nothing from the program of before; cmd/e2e/upgrade
	// runs that beside the one of now.
	loosens := regexp.MustCompile(`^migrations/0022_regions_of_platforms\.(sqlite|postgresql)\.sql$`)
	for _, name := range names {
		text, err := fs.ReadFile(db.Migrations(), name)
		require.NoError(t, err)
		require.NotEqual(t, loosens.MatchString(name), onlyAdds(string(text)), "%s says -- expands, and does more than add", name)
	}
	for text, want := range map[string]bool{
		"ALTER TABLE a DROP COLUMN b;":                                       false,
		"ALTER TABLE a ADD COLUMN b TEXT NOT NULL;":                          false,
		"ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT '' UNIQUE;":        false,
		"ALTER TABLE a RENAME COLUMN b TO c;":                                false,
		"CREATE UNIQUE INDEX a ON b (c);":                                    false,
		"CREATE TABLE a (b TEXT);\nDROP TABLE c;":                            false,
		"UPDATE a SET b = c;":                                                false,
		"ALTER TABLE a ADD COLUMN b TEXT NULL;\nUPDATE a SET c = b;":         false,
		"ALTER TABLE a ADD COLUMN b TEXT NULL;\nUPDATE a SET b = c, c = 1;":  false,
		"ALTER TABLE a ADD COLUMN b TEXT NULL;\nUPDATE a SET b = c WHERE d;": true,
		"-- why\nCREATE TABLE a (\n    b TEXT NOT NULL PRIMARY KEY -- c\n);": true,
		"ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT '';":               true,
		"ALTER TABLE a ADD COLUMN b BIGINT NULL;\nCREATE INDEX c ON a (b);":  true,
	} {
		require.Equal(t, want, onlyAdds("-- expands\n"+text), text)
		require.True(t, onlyAdds(text), "it does not say so")
	}
}

// TestRegionsOfBeforeKeepWhatTheyHave has the migration that makes regions unique by platform and
// name run on rows that refer to one.
func TestRegionsOfBeforeKeepWhatTheyHave(t *testing.T) {
	before, ok := later(t).(fstest.MapFS)
	require.True(t, ok)
	maps.DeleteFunc(before, func(name string, _ *fstest.MapFile) bool { return name >= "migrations/0022" })
	last := before[slices.Max(slices.Collect(maps.Keys(before)))]
	for _, view := range []string{"deployment_topology_versions", "sentinel_versions", "cilium_network_policy_versions"} {
		last.Data = append(last.Data, "\nCREATE VIEW "+view+" AS SELECT name AS region FROM regions;"...)
	}
	put := func(id, platform, hash string) string {
		return fmt.Sprintf(`INSERT INTO regions (id, name, platform, token_hash, created_at, agent_epoch, epoch_heard_at, held_deletions, cell_id)
			VALUES ('%s', 'eu-1', '%s', '%s', 1, 2, 3, '{}', 'cell')`, id, platform, hash)
	}
	for name, open := range openers(t) {
		t.Run(name, func(t *testing.T) {
			var database *db.Database
			run := func(statement string) error {
				return database.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tx.ExecContext(t.Context(), statement)
					return err
				})
			}
			read := func(query string) (text string) {
				t.Helper()
				require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error { return tx.QueryRowContext(t.Context(), query).Scan(&text) }))
				return text
			}
			var err error
			database, err = open(before)
			require.NoError(t, err)
			require.NoError(t, run(`DELETE FROM controlplane_digests`)) // the views make it another text
			require.NoError(t, run(put("reg_aws", "aws", "h1")))
			require.NoError(t, run(`INSERT INTO deployments VALUES ('d', 'ws', 'ns', 'web', 1)`))
			require.NoError(t, run(`INSERT INTO deployment_topology (deployment_id, region_id, workspace_id, desired_state, spec, updated_at)
				VALUES ('d', 'reg_aws', 'ws', 'running', '{}', 1)`))
			require.Error(t, run(put("reg_gcp", "gcp", "h2")), "the name is unique before")
			require.NoError(t, database.Close())

			database, err = open(later(t))
			require.NoError(t, err)
			require.NoError(t, run(put("reg_gcp", "gcp", "h2")))
			require.Error(t, run(put("reg_other", "gcp", "h3")), "platform and name are unique")
			require.Error(t, run(put("reg_other", "azure", "h2")), "a token is unique")
			require.Error(t, run(`DELETE FROM regions WHERE id = 'reg_aws'`), "a row refers to it")
			require.Equal(t, "eu-1 aws h1 1 2 3 {} cell", read(`SELECT name || ' ' || platform || ' ' || token_hash || ' ' || created_at || ' ' ||
				agent_epoch || ' ' || epoch_heard_at || ' ' || held_deletions || ' ' || cell_id || scope FROM regions WHERE id = 'reg_aws'`))
			require.Equal(t, "eu-1 aws d running", read(`SELECT region || ' ' || platform || ' ' || id || ' ' || desired_state
				FROM deployment_topology_versions`))
			require.NoError(t, run(`DELETE FROM deployment_topology`))
			require.NoError(t, run(`DELETE FROM regions WHERE id = 'reg_aws'`))
			require.NoError(t, database.Close())

			database, err = open(before)
			require.NoError(t, err, "the program of before")
			require.NoError(t, run(put("reg_us", "us", "h4")))
			require.NoError(t, database.Close())
		})
	}
}

// TestServicesOfBeforeHaveTheirHostnames has the migration that stores hostnames run on services of before.
func TestServicesOfBeforeHaveTheirHostnames(t *testing.T) {
	before, ok := later(t).(fstest.MapFS)
	require.True(t, ok)
	maps.DeleteFunc(before, func(name string, _ *fstest.MapFile) bool { return name >= "migrations/0026" })
	for name, open := range openers(t) {
		t.Run(name, func(t *testing.T) {
			database, err := open(before)
			require.NoError(t, err)
			require.NoError(t, database.Write(t.Context(), func(tx *db.Tx) error {
				for _, statement := range []string{
					strings.Replace(insert, "?", "'c'", 1),
					`INSERT INTO projects (id, cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted, generation, updated_at)
						VALUES ('p', 'c', 'w', 'acme', 'shop', 'ns', '{}', 0, 1, 1)`,
					`INSERT INTO services (project_id, environment, service_id, spec, deleted, generation, updated_at) VALUES
						('p', 'production', 'a', '{"image":"a:1","hostname":"shop.example.com"}', 0, 1, 1),
						('p', 'production', 'b', '{"image":"a:1"}', 0, 1, 1), ('p', 'production', 'c', '{}', 1, 1, 1)`,
				} {
					if _, err := tx.ExecContext(t.Context(), statement); err != nil {
						return err
					}
				}
				return nil
			}))
			require.NoError(t, database.Close())

			database, err = open(later(t))
			require.NoError(t, err)
			defer database.Close()
			require.NoError(t, database.Read(t.Context(), func(tx *db.Tx) error {
				rows, err := tx.QueryContext(t.Context(), `SELECT service_id || ' ' || hostname FROM services ORDER BY service_id`)
				have, err := db.Collect(rows, err, func(rows *sql.Rows, line *string) error { return rows.Scan(line) })
				require.Equal(t, []string{"a shop.example.com", "b ", "c "}, have)
				return err
			}))
		})
	}
}

func TestADamagedDatabaseIsNotOpened(t *testing.T) {
	path := filled(t)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Greater(t, len(content), 40000)
	for i := 20000; i < 36000; i++ {
		content[i] ^= 0x5a
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	requireNotOpened(t, path, db.ErrCorrupt, "restore it from a backup")

	cut := filled(t)
	require.NoError(t, os.Truncate(cut, 20000))
	requireNotOpened(t, cut, db.ErrCorrupt, "restore it from a backup")
}

func TestALockedDatabaseIsNotOpened(t *testing.T) {
	path := filled(t)
	lock := raw(t, path, "BEGIN EXCLUSIVE")
	requireNotOpened(t, path, db.ErrBusy, "another process holds it")
	_, err := lock.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	database, err := db.SQLite{Path: path}.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, database.Close())
}

func TestAFolderThatIsNotThereIsNamed(t *testing.T) {
	_, err := db.SQLite{Path: "/no/such/folder/x.db"}.Open(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "/no/such/folder/x.db")
}

func TestATransactionIsWholeOnBothDatabases(t *testing.T) {
	file, err := db.SQLite{Path: filepath.Join(t.TempDir(), "trueup.db")}.Open(t.Context())
	require.NoError(t, err)
	server, err := db.PostgreSQL{URL: pgtest.NewDatabase(t)}.Open(t.Context())
	require.NoError(t, err)
	for _, database := range []*db.Database{file, server} {
		ctx := t.Context()
		require.NoError(t, database.Ping(ctx))
		count := func() (n int) {
			require.NoError(t, database.Read(ctx, func(tx *db.Tx) error {
				return tx.QueryRowContext(ctx, `SELECT count(*) FROM clusters WHERE region = ?`, "nyc3").Scan(&n)
			}))
			return n
		}
		stop := fmt.Errorf("not after all")
		require.ErrorIs(t, database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, insert, "1")
			require.NoError(t, err)
			return stop
		}), stop)
		require.Zero(t, count())
		require.NoError(t, database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, insert, "1")
			return err
		}))
		require.Equal(t, 1, count())
		require.NoError(t, database.Close())
		require.Error(t, database.Ping(ctx))
	}
}

// TestHostileSourcesShowNoPassword has sources of every form, with a slip or without: no
// password is in an error, and none becomes the name of a file.
func TestHostileSourcesShowNoPassword(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	// What would be looked up, sent in the clear or made as a file is refused before.
	refused := []string{
		"postgres://u:p@hunter2@127.0.0.1:1/x",
		"postgres://u:p@hunter2/y@127.0.0.1:1/x",
		"postgres://u:1/hunter2@127.0.0.1:1/x",
		"postgres://u:1?a=b&hunter2@127.0.0.1:1/x=y",
		"postgres://u:pq@hunter2,b@127.0.0.1:1/x",
		"postgres:///u:hunter2@h:1/x",
		"postgres://127.0.0.1:1/x;password=hunter2",
		"postgres://127.0.0.1:1/x&password=hunter2",
		"postgres://127.0.0.1:1/x%3Fpassword=hunter2",
		"dbname=postgres://u:hunter2@127.0.0.1:1/x host=127.0.0.1",
		"postgres://u%3Ahunter2@127.0.0.1:1/x",
		"postgres://u%40hunter2@127.0.0.1:1/x",
		"postgres://127.0.0.1:1/x?user=u:hunter2",
		"postgres://127.0.0.1:1/x?dbname=u:hunter2@h",
		"postgres://127.0.0.1:1/x?host=u:hunter2@h",
		"user=u:hunter2 host=127.0.0.1 port=1",
		"host=u:hunter2@127.0.0.1 port=1",
		"host=127.0.0.1,u:hunter2@127.0.0.1 port=1",
		"host=/u:hunter2@127.0.0.1 port=1",
		"postgres://127.0.0.1:1/x?statement_cache_capacity=hunter2",
		"sqlite://u:hunter2@h",
		"sqlite://u:hunter2@h/x.db",
		"sqlite:///u:hunter2@h/x.db",
		"sqlite://hunter2@h/x.db",
		"sqlite://x.db?key=hunter2",
		"sqlite://x.db;key=hunter2",
		"sqlite://" + dir + "/x.db?key=hunter2",
		"sqlite://" + dir + "/x.db?mode=rw&key=hunter2",
	}
	for _, source := range append([]string{
		"postgres://u:1?hunter2@127.0.0.1:1/x",
		"postgres://u:1#hunter2@127.0.0.1:1/x",
		"postgres://trueup:hunter2@127.0.0.1:1/db",
		"postgres://127.0.0.1:1/db?user=trueup&password=hunter2",
		"postgresql://127.0.0.1:1/db?user=trueup&password=hunter2&sslpassword=hunter2",
		"postgres://trueup:hunter2@[::1/db",
		"postgres://127.0.0.1:port/db?password=hunter2",
		"host=127.0.0.1 port=1 user=trueup password=hunter2 dbname=db",
		" password = 'hunter2' host=127.0.0.1 port=1",
		"host=127.0.0.1 port=none password=hunter2",
		"keepalives=1 password=hunter2 host=127.0.0.1 port=1",
		"channel_binding=require password=hunter2 host=127.0.0.1 port=1",
		"gssencmode=disable password=hunter2 host=127.0.0.1 port=1",
		"PASSWORD=hunter2 host=127.0.0.1 port=1",
		"Password = hunter2 host=127.0.0.1 port=1",
		"password=hunter2",
		"passwort=hunter2 host=127.0.0.1 port=1",
		"password=hunter2 host='127.0.0.1",
		"password=hunter2 application_name=a://b host=127.0.0.1 port=1",
		"password=hunter2://x",
		"postgres:user:hunter2@127.0.0.1:1/db",
		"postgres:/user:hunter2@127.0.0.1:1/db",
		"postgres//user:hunter2@host",
		"POSTGRES://user:hunter2@127.0.0.1:1/db",
		"postgres ://user:hunter2@127.0.0.1:1/db",
		"//user:hunter2@127.0.0.1/db",
		"user:hunter2@host",
		"hunter2@host",
		"hunter2://user@host/db",
		"pgsql://user:hunter2@host/db",
		"mysql://user:hunter2@host/db",
		"jdbc:postgresql://host/db?password=hunter2",
		"file:trueup.db?password=hunter2",
		"trueup.db?hunter2",
		"hunter2=",
	}, refused...) {
		t.Run(strings.ReplaceAll(source, "hunter2", "X"), func(t *testing.T) {
			t.Setenv("PGCONNECT_TIMEOUT", "2")
			t.Setenv("PGHOST", "127.0.0.1")
			t.Setenv("PGPORT", "1")
			for name, open := range map[string]func() error{
				"open":   func() error { _, err := db.Open(t.Context(), source); return err },
				"old":    func() error { _, err := db.OpenExisting(t.Context(), source); return err },
				"backup": func() error { return db.Backup(t.Context(), source, "copy") },
			} {
				err := open()
				require.Error(t, err, name)
				require.NotContains(t, err.Error(), "hunter2", name)
				if slices.Contains(refused, source) && (name != "backup" || strings.HasPrefix(source, "sqlite:")) {
					require.ErrorIs(t, err, db.ErrBadURL, "it is neither looked up nor sent")
				}
				if strings.HasPrefix(strings.ToLower(source), "password") && source[0] == 'P' {
					require.ErrorIs(t, err, map[bool]error{true: db.ErrNoBackup, false: db.ErrBadURL}[name == "backup"], "it is sent to no server")
				}
			}
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, files)
		})
	}
}

func TestADatabaseThatIsNotThereIsNotMade(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	server := pgtest.NewDatabase(t)
	for source, want := range map[string]error{
		filepath.Join(dir, "mistyped.db"): os.ErrNotExist, empty: db.ErrEmpty, server: db.ErrEmpty, "": db.ErrBadURL, "sqlite://": db.ErrBadURL,
	} {
		_, err := db.OpenExisting(t.Context(), source)
		require.ErrorIs(t, err, want, source)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	content, err := os.ReadFile(empty)
	require.NoError(t, err)
	require.Empty(t, content)
	for _, source := range []string{empty, server} {
		database, err := db.Open(t.Context(), source)
		require.NoError(t, err)
		require.NoError(t, database.Close())
		database, err = db.OpenExisting(t.Context(), source)
		require.NoError(t, err)
		require.NoError(t, database.Close())
	}
}

func TestASourceIsUnderstoodInEachOfItsForms(t *testing.T) {
	t.Chdir(t.TempDir())
	server, err := url.Parse(pgtest.NewDatabase(t))
	require.NoError(t, err)
	folder, database := server.Query().Get("host"), server.Path[1:]
	place := "postgres:///" + database + "?host=" + folder
	for source, name := range map[string]string{
		server.String(): place,
		"postgresql:///" + database + "?user=trueup&password=hunter2&host=" + url.QueryEscape(folder):            place,
		fmt.Sprintf("host=%s user=trueup password=hunter2 dbname=%s", folder, database):                          place,
		fmt.Sprintf("connect_timeout=60 application_name=a://b host=%s user=trueup dbname=%s", folder, database): place,
		"sqlite://trueup.db":     "trueup.db",
		"sqlite://size=large.db": "size=large.db",
		"sqlite://./a@b.db":      "a@b.db",
		"sqlite://./a?b:c.db":    "a?b:c.db",
		"./trueup copy.db":       "trueup copy.db",
	} {
		database, err := db.Open(t.Context(), source)
		require.NoError(t, err, source)
		require.Contains(t, database.Name(), name)
		require.NotContains(t, database.Name(), "hunter2")
		require.NoError(t, database.Close())
	}
}

// TestASecondOneOnAFileIsSeen opens it twice, as two processes do, and again after the first is gone.
func TestASecondOneOnAFileIsSeen(t *testing.T) {
	t.Parallel()
	path := filled(t)
	opened := func() *db.Database {
		d, err := db.SQLite{Path: path}.Open(t.Context())
		require.NoError(t, err)
		return d
	}
	first, second := opened(), opened()
	alone, err := first.Alone()
	require.NoError(t, err)
	require.True(t, alone)
	alone, err = second.Alone()
	require.NoError(t, err)
	require.False(t, alone)
	require.NoError(t, second.Close())
	require.NoError(t, first.Close())
	third := opened()
	alone, err = third.Alone()
	require.NoError(t, err)
	require.True(t, alone)
	require.NoError(t, third.Close())
}

// However many write at once, none waits longer than those that came before it take.
func TestWritersOfASQLiteTakeTurnsInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trueup.db")
	synctest.Test(t, func(t *testing.T) {
		database, err := db.SQLite{Path: path}.Open(t.Context())
		require.NoError(t, err)
		const many = 30
		hold, begun := make(chan struct{}), make(chan struct{})
		order := make(chan int, many+1)
		var writers sync.WaitGroup
		write := func(ctx context.Context, n int) error {
			return database.Write(ctx, func(*db.Tx) error {
				if n < 0 {
					close(begun)
					<-hold
				}
				order <- n
				return nil
			})
		}
		writers.Go(func() { assert.NoError(t, write(t.Context(), -1)) })
		<-begun
		for n := range many {
			writers.Go(func() { assert.NoError(t, write(t.Context(), n)) })
			synctest.Wait() // it waits for its turn
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, write(late, many), context.DeadlineExceeded)
		close(hold)
		writers.Wait()
		close(order)
		for want := -1; want < many; want++ {
			require.Equal(t, want, <-order)
		}
		require.NoError(t, database.Close())
	})
}
