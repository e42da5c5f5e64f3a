package database_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// TestDatabases runs everything on one server.
func TestDatabases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, test := range map[string]func(*bench){
		"made":      made,
		"drift":     drifts,
		"foreign":   foreign,
		"namespace": twoNamespaces,
		"delete":    deletes,
		"byhand":    byHand,
		"retain":    retains,
		"anon":      anonymous,
		"rotate":    rotates,
		"crash":     crashes,
		"denied":    denied,
		"race":      race,
		"literal":   literals,
		"postgrest": postgrest,
	} {
		t.Run(name, func(t *testing.T) { test(&bench{T: t, pg: b.pg, database: b.database, admin: b.admin}) })
	}
}

// login connects as an application does.
func (b *bench) login(url string) *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(func() { conn.Close(context.WithoutCancel(b.Context())) })
	return conn
}

func (b *bench) exec(conn *pgx.Conn, statement string) {
	b.Helper()
	_, err := conn.Exec(b.Context(), statement)
	require.NoError(b, err)
}

// made is D1, D16, D22 and D30: what an app needs is there, and a second pass writes
// nothing.
func made(b *bench) {
	tr := &trace{}
	s, w := b.open(tr), want("made")
	before := b.everything()
	done, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Contains(b, done, "create schema prod_made")
	for _, statement := range tr.writes {
		require.NotContains(b, statement, w.Password)
	}
	tr.writes = nil
	done, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Empty(b, done)
	require.Empty(b, tr.writes)
	require.Equal(b, before, b.everything("prod_made"), "of what is not ours")

	app := b.login(s.URL(w))
	var path string
	require.NoError(b, app.QueryRow(b.Context(), "SHOW search_path").Scan(&path))
	require.Equal(b, "prod_made", path)
	b.exec(app, "CREATE TABLE todos (id serial PRIMARY KEY, title text); INSERT INTO todos (title) VALUES ('a')")
	b.exec(app, "SET ROLE prod_made_anon")
	var n int
	require.NoError(b, app.QueryRow(b.Context(), "SELECT count(*) FROM todos").Scan(&n))
	require.Equal(b, 1, n)
	for _, statement := range []string{"INSERT INTO todos (title) VALUES ('b')", "UPDATE todos SET title = 'b'", "DELETE FROM todos", "CREATE TABLE more ()"} {
		_, err := app.Exec(b.Context(), statement)
		require.ErrorContains(b, err, "permission denied", statement)
	}
	// libpq, as PostgREST has it.
	require.NoError(b, b.pg.SQL(b.Context(), s.PostgRESTURL(w), "SELECT"))
	require.ErrorContains(b, b.pg.SQL(b.Context(), s.URL(w), "SELECT"), `invalid URI query parameter: "search_path"`)
	require.Error(b, b.pg.SQL(b.Context(), strings.Replace(s.PostgRESTURL(w), "_app:", "_anon:", 1), "SELECT"))
}

// drifts is C4, D7 and the part of C1 that is in the database.
func drifts(b *bench) {
	s, w := b.open(nil), want("drift")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.exec(b.login(s.URL(w)), "CREATE TABLE todos (id int)")
	good := b.everything()
	for _, change := range []string{
		"REVOKE ALL ON SCHEMA prod_drift FROM prod_drift_app",
		"REVOKE CREATE ON SCHEMA prod_drift FROM prod_drift_app",
		"REVOKE USAGE ON SCHEMA prod_drift FROM prod_drift_anon",
		"GRANT CREATE ON SCHEMA prod_drift TO prod_drift_anon",
		"REVOKE prod_drift_anon FROM prod_drift_app",
		"ALTER ROLE prod_drift_app NOLOGIN",
		"ALTER ROLE prod_drift_anon LOGIN",
		"ALTER ROLE prod_drift_app PASSWORD 'other'",
		"ALTER ROLE prod_drift_app PASSWORD NULL",
		"ALTER ROLE prod_drift_app RESET search_path",
		"ALTER ROLE prod_drift_app SET search_path = public, prod_drift",
		"ALTER DEFAULT PRIVILEGES FOR ROLE prod_drift_app IN SCHEMA prod_drift REVOKE SELECT ON TABLES FROM prod_drift_anon",
		"ALTER DEFAULT PRIVILEGES FOR ROLE prod_drift_app IN SCHEMA prod_drift GRANT INSERT ON TABLES TO prod_drift_anon",
		"ALTER DEFAULT PRIVILEGES FOR ROLE operator IN SCHEMA prod_drift REVOKE UPDATE ON TABLES FROM prod_drift_app",
	} {
		b.super(change)
		require.NotEqual(b, good, b.everything(), change)
		done, err := s.Apply(b.Context(), w)
		require.NoError(b, err, change)
		require.Len(b, done, 1, change)
		require.Equal(b, withoutPasswords(good), withoutPasswords(b.everything()), change)
		b.login(s.URL(w))
	}
	// What the app has taken from anonymous readers stays taken.
	b.exec(b.login(s.URL(w)), "REVOKE SELECT ON todos FROM prod_drift_anon")
	done, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Empty(b, done)
	// A deleted schema and deleted roles are created again.
	b.super("DROP SCHEMA prod_drift CASCADE; DROP OWNED BY prod_drift_app, prod_drift_anon; DROP ROLE prod_drift_app, prod_drift_anon")
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.login(s.URL(w))
}

// withoutPasswords cuts what the server keeps of passwords, which has a salt, and tables.
func withoutPasswords(lines []string) (out []string) {
	for _, line := range lines {
		before, after, found := strings.Cut(line, "SCRAM-SHA-256$")
		if found {
			_, after, _ = strings.Cut(after, " ")
			line = before + after
		}
		out = append(out, line)
	}
	return out
}

// foreign is D18: each of the three names is taken by something of another.
func foreign(b *bench) {
	s := b.open(nil)
	for name, statement := range map[string]string{
		"schema": "CREATE SCHEMA prod_foreign1; CREATE TABLE prod_foreign1.kept (id int)",
		"app":    "CREATE ROLE prod_foreign2_app LOGIN PASSWORD 'theirs'",
		"anon":   "CREATE ROLE prod_foreign3_anon; COMMENT ON ROLE prod_foreign3_anon IS 'made by hand'",
		"other":  "CREATE SCHEMA prod_foreign4; COMMENT ON SCHEMA prod_foreign4 IS 'platform.internal cluster=c1 namespace=team name=foreign4 uid=another'",
	} {
		b.super(statement)
		w := want(map[string]string{"schema": "foreign1", "app": "foreign2", "anon": "foreign3", "other": "foreign4"}[name])
		before := b.everything()
		require.ErrorIs(b, s.Check(b.Context(), w), external.ErrOwnedByOther, name)
		done, err := s.Apply(b.Context(), w)
		require.ErrorIs(b, err, external.ErrOwnedByOther, name)
		require.Contains(b, err.Error(), w.Schema)
		require.Empty(b, done)
		for _, retain := range []bool{true, false} {
			done, err = s.Delete(b.Context(), w, retain)
			require.NoError(b, err)
			require.Empty(b, done)
		}
		require.Equal(b, before, b.everything(), name)
	}
}

// twoNamespaces is D19: the first wins, and deleting the second harms nothing.
func twoNamespaces(b *bench) {
	s, first := b.open(nil), want("twice")
	second := first
	second.Mark.Namespace, second.Mark.UID, second.Password = "other", "uid-2", database.NewPassword()
	_, err := s.Apply(b.Context(), first)
	require.NoError(b, err)
	before := b.everything()
	_, err = s.Apply(b.Context(), second)
	require.ErrorIs(b, err, external.ErrOwnedByOther)
	require.ErrorContains(b, err, "belongs to team/twice (UID uid-twice) of cluster c1")
	_, err = s.Delete(b.Context(), second, false)
	require.NoError(b, err)
	require.Equal(b, before, b.everything())
	b.login(s.URL(first))
}

// deletes is D13 and D16: nothing is left of ours, and all of others.
func deletes(b *bench) {
	s, w := b.open(nil), want("deleted")
	other := want("kept")
	_, err := s.Apply(b.Context(), other)
	require.NoError(b, err)
	before := b.everything()
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	app := b.login(s.URL(w))
	b.exec(
		app,
		"CREATE TABLE a (id int); CREATE VIEW v AS SELECT * FROM a; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TYPE mood AS ENUM ('ok')",
	)
	done, err := s.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Equal(b, "drop schema prod_deleted", done[len(done)-1])
	require.Equal(b, before, b.everything())
	done, err = s.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Empty(b, done)
	// Others have made something in the schema and let the roles use it.
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.super("CREATE TABLE prod_deleted.of_postgres (id int); GRANT ALL ON prod_deleted.of_postgres TO prod_deleted_app, prod_deleted_anon")
	_, err = s.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Equal(b, before, b.everything())
}

// byHand is D15: parts were removed by a person, also what an app owns elsewhere.
func byHand(b *bench) {
	s := b.open(nil)
	before := b.everything()
	for n, statement := range []string{
		"DROP SCHEMA prod_hand%[1]d CASCADE",
		"REASSIGN OWNED BY prod_hand%[1]d_app TO postgres; DROP OWNED BY prod_hand%[1]d_app; DROP ROLE prod_hand%[1]d_app",
		"DROP OWNED BY prod_hand%[1]d_anon; DROP ROLE prod_hand%[1]d_anon",
		"DROP SCHEMA prod_hand%[1]d CASCADE; DROP OWNED BY prod_hand%[1]d_app; DROP ROLE prod_hand%[1]d_app",
		"REVOKE prod_hand%[1]d_app FROM operator",
		"SELECT 1 + %[1]d",
	} {
		w := want(fmt.Sprint("hand", n))
		_, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
		b.exec(b.login(s.URL(w)), "CREATE TABLE a (id int)")
		b.super(fmt.Sprintf(statement, n))
		_, err = s.Delete(b.Context(), w, false)
		require.NoError(b, err, statement)
		require.Equal(b, before, b.everything(), statement)
	}
	w := want("elsewhere")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.super("CREATE TABLE public.elsewhere (id int); ALTER TABLE public.elsewhere OWNER TO prod_elsewhere_app")
	_, err = s.Delete(b.Context(), w, false)
	require.NoError(b, err)
	require.Empty(
		b,
		b.rows("SELECT tableowner FROM pg_tables WHERE tablename = 'elsewhere'"),
		"nothing of a tenant is given to an administrator",
	)
}

// retains is C8: the next object of the name adopts the retained schema, and no other does.
func retains(b *bench) {
	s, first := b.open(nil), want("retained")
	_, err := s.Apply(b.Context(), first)
	require.NoError(b, err)
	b.exec(b.login(s.URL(first)), "CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)")
	done, err := s.Delete(b.Context(), first, true)
	require.NoError(b, err)
	require.NotEmpty(b, done)
	done, err = s.Delete(b.Context(), first, true)
	require.NoError(b, err)
	require.Empty(b, done)
	_, err = pgx.Connect(b.Context(), s.URL(first))
	require.ErrorContains(b, err, "not permitted to log in")

	second := first
	second.Mark.UID, second.Password = "uid-next", database.NewPassword()
	stranger := second
	stranger.Mark.Namespace = "other"
	_, err = s.Apply(b.Context(), stranger)
	require.ErrorIs(b, err, external.ErrOwnedByOther)
	require.ErrorContains(b, err, "has left it")
	done, err = s.Delete(b.Context(), second, false)
	require.NoError(b, err)
	require.Empty(b, done, "what was left is not the next one's before it has adopted it")
	_, err = s.Apply(b.Context(), second)
	require.NoError(b, err)
	var kept int
	require.NoError(b, b.login(s.URL(second)).QueryRow(b.Context(), "SELECT id FROM kept").Scan(&kept))
	require.Equal(b, 7, kept)
	done, err = s.Apply(b.Context(), second)
	require.NoError(b, err)
	require.Empty(b, done)
	_, err = s.Delete(b.Context(), second, false)
	require.NoError(b, err)
	require.Empty(b, b.rows("SELECT nspname::text FROM pg_namespace WHERE nspname = 'prod_retained'"))
}

// anonymous is C19: reading can be turned off and on, also for tables that exist.
func anonymous(b *bench) {
	s, w := b.open(nil), want("anon")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	app := b.login(s.URL(w))
	b.exec(app, "CREATE TABLE one (id int, name text); GRANT SELECT (id) ON one TO prod_anon_anon")
	reads := func(table string) string {
		return strings.Join(b.rows("SELECT has_any_column_privilege('prod_anon_anon', $1, 'SELECT')::text", "prod_anon."+table), "")
	}
	require.Equal(b, "true", reads("one"))
	w.AnonRead = false
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.exec(app, "CREATE TABLE two (id int)")
	require.Equal(b, "false", reads("one"))
	require.Equal(b, "false", reads("two"))
	b.exec(app, "GRANT SELECT ON two TO prod_anon_anon")
	done, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"revoke all tables from prod_anon_anon"}, done)
	w.AnonRead = true
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, "true", reads("one"))
	require.Equal(b, "true", reads("two"))
	done, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Empty(b, done)
}

// rotates is C2: a new password replaces the old one, with one statement.
func rotates(b *bench) {
	s, w := b.open(nil), want("rotated")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	old := w
	w.Password = "a person's: p@ss/w?rd#%"
	require.NoError(b, s.Check(b.Context(), w))
	done, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	require.Equal(b, []string{"set the password of role prod_rotated_app"}, done)
	b.login(s.URL(w))
	_, err = pgx.Connect(b.Context(), s.URL(old))
	require.ErrorContains(b, err, "password authentication failed")
}

// crashes is D12 and D15: the program ends before or after each statement; the next one
// ends as if nothing had been.
func crashes(b *bench) {
	undisturbed, w := b.open(nil), want("crash")
	_, err := undisturbed.Apply(b.Context(), w)
	require.NoError(b, err)
	made := withoutPasswords(b.everything())
	_, err = undisturbed.Delete(b.Context(), w, false)
	require.NoError(b, err)
	gone := b.everything()
	count := 0
	for _, deleting := range []bool{false, true} {
		for n := 1; ; n++ {
			crashed := false
			for _, after := range []bool{false, true} {
				if deleting {
					_, err := undisturbed.Apply(b.Context(), w)
					require.NoError(b, err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				tr := &trace{crash: n, after: after, cancel: cancel}
				s, err := database.Open(b.Context(), database.Options{URL: b.url(), Tracer: tr})
				require.NoError(b, err)
				if deleting {
					_, err = s.Delete(ctx, w, false)
				} else {
					_, err = s.Apply(ctx, w)
				}
				crashed = len(tr.writes) >= n
				// An answer that came before the end is no failure.
				require.True(b, err != nil || !crashed || after && strings.EqualFold(tr.writes[n-1], "commit"), "statement %d was not the end", n)
				cancel()
				s.Close()
				_, err = undisturbed.Apply(b.Context(), w)
				require.NoError(b, err)
				require.Equal(b, made, withoutPasswords(b.everything()), "statement %d", n)
				b.login(undisturbed.URL(w))
				_, err = undisturbed.Delete(b.Context(), w, false)
				require.NoError(b, err)
				require.Equal(b, gone, b.everything(), "statement %d", n)
				if crashed {
					count++
				}
			}
			if !crashed {
				break
			}
		}
	}
	b.Logf("figure application_sql_crashes %d boundaries", count)
	require.Greater(b, count, 40)
}

// denied is the bad input of the issue: the message names the cure, and shows no secret.
func denied(b *bench) {
	b.super("CREATE ROLE weak LOGIN PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO weak")
	b.super("CREATE ROLE narrow LOGIN CREATEROLE PASSWORD 'adm1n'")
	for admin, cure := range map[string]string{"weak": "grants it with ALTER ROLE ... CREATEROLE", "narrow": "GRANT CREATE ON DATABASE"} {
		s := (&bench{T: b.T, pg: b.pg, database: b.database, admin: admin}).open(nil)
		before := b.everything()
		require.ErrorIs(b, s.Check(b.Context(), want("denied")), external.ErrDenied)
		_, err := s.Apply(b.Context(), want("denied"))
		require.ErrorIs(b, err, external.ErrDenied)
		require.ErrorContains(b, err, cure)
		require.NotContains(b, err.Error(), admin, "a tenant reads it")
		require.Equal(b, before, b.everything())
	}
	address := fmt.Sprintf("127.0.0.1:%d", b.pg.Port)
	for url, reason := range map[string]string{
		"postgresql://operator:wr0ng@" + address + "/platform":   external.ReasonDenied,
		"postgresql://operator:adm1n@" + address + "/nowhere":    external.ReasonDenied,
		"postgresql://operator:adm1n@127.0.0.1:1/platform":       external.ReasonUnreachable,
		"postgresql://operator:adm1n@" + silent(b) + "/platform": external.ReasonUnreachable,
	} {
		s, err := database.Open(b.Context(), database.Options{URL: url, Timeout: time.Second})
		require.NoError(b, err)
		b.Cleanup(s.Close)
		_, err = s.Apply(b.Context(), want("denied"))
		require.Error(b, err)
		require.Equal(b, reason, external.Reason(err), err.Error())
		require.NotContains(b, err.Error(), "adm1n")
		require.NotContains(b, err.Error(), "wr0ng")
	}
	for _, url := range []string{"postgresql://operator:s3cret@host:port/db", "mysql://operator:s3cret@host/db", "postgresql://host", "%s3cret"} {
		_, err := database.Open(b.Context(), database.Options{URL: url})
		require.ErrorContains(b, err, `DB_ADMIN_URL: is "(hidden)", must`)
		require.NotContains(b, err.Error(), "s3cret")
	}
	_, err := b.open(nil).Apply(b.Context(), database.Want{Schema: `a"; DROP SCHEMA b`, App: "a", Anon: "b"})
	require.ErrorContains(b, err, "must be a-z, 0-9 and _")
}

// silent is the address of a server that takes connections and says nothing.
func silent(b *bench) string {
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// race is two objects that want one schema at the same time: one has it, and one is
// refused.
func race(b *bench) {
	s := b.open(nil)
	for n := range 5 {
		type outcome struct {
			want database.Want
			err  error
		}
		outcomes := make(chan outcome)
		for _, uid := range []string{"one", "two", "three"} {
			w := want(fmt.Sprint("race", n))
			w.Mark.UID = uid
			go func() {
				ctx, cancel := context.WithTimeout(b.Context(), soon)
				defer cancel()
				_, err := s.Apply(ctx, w)
				outcomes <- outcome{w, err}
			}()
		}
		won := 0
		for range 3 {
			if o := <-outcomes; o.err == nil {
				won++
				b.login(s.URL(o.want))
			} else {
				require.ErrorIs(b, o.err, external.ErrOwnedByOther)
			}
		}
		require.Equal(b, 1, won)
	}
}

// literals are read by the server as they were written.
func literals(b *bench) {
	for _, text := range []string{"", "plain", "it's", `back\slash`, `'; DROP SCHEMA x; --`, `\'`, "E'x'", "ü 日本", "a\tb\nc"} {
		require.Equal(b, []string{text}, b.rows("SELECT "+database.Literal(text)+"::text"))
		if text != "" {
			require.Equal(
				b,
				[]string{text},
				b.rows(
					"SELECT "+database.Identifier(
						text,
					)+` FROM (SELECT '1' || $1::text, `+database.Literal(
						text,
					)+`::text AS `+database.Identifier(
						text,
					)+`) x`,
					text,
				),
			)
		}
	}
}

func FuzzNoStatementHoldsAnotherName(f *testing.F) {
	for _, name := range []string{"prod_app", `a"b`, "a;b", "pg_x", "", "A", "1a", strings.Repeat("a", 64), "a\x00"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if database.CheckName(name) != nil {
			return
		}
		require.Regexp(t, `^[a-z][a-z0-9_]{0,62}\z`, name)
		require.Equal(t, `"`+name+`"`, database.Identifier(name))
	})
}
