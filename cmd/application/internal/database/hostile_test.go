package database_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// TestHostileDatabases is what the role of one app does to the server, to others and to the
// administrator.
func TestHostileDatabases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.super("GRANT CREATE ON SCHEMA public TO PUBLIC") // as before PostgreSQL 15
	for name, attack := range map[string]func(*bench){
		"schema of the administrator":    reservedNames,
		"role named as a schema":         roleNamedAsASchema,
		"schema that was the tenant's":   oldSchemaOfTheAdministrator,
		"statements mean pg_catalog":     statementsAreQualified,
		"functions of public":            functionsOfPublic,
		"heirs":                          heirs,
		"large object elsewhere":         largeObjectElsewhere,
		"rights elsewhere":               rightsElsewhere,
		"more tables than locks":         moreTablesThanLocks,
		"large object here":              largeObjectHere,
		"session with a lock":            sessionWithALock,
		"lock of another":                lockOfAnother,
		"view of another":                viewOfAnother,
		"all connections":                allConnections,
		"statements without an end":      statementsWithoutAnEnd,
		"other databases":                otherDatabases,
		"errors name no administrator":   errorsNameNoAdministrator,
		"messages name no administrator": messagesNameNoAdministrator,
	} {
		t.Run(name, func(t *testing.T) { attack(&bench{T: t, pg: b.pg, database: b.database, admin: b.admin}) })
	}
}

// named returns what an app of that schema wants.
func named(schema string) database.Want {
	w := want(schema)
	w.Schema, w.App, w.Anon = schema, schema+"_app", schema+"_anon"
	return w
}

// reservedNames tries the names of existing roles: the administrator, the superuser, the owner
// of the database, another app, a person.
func reservedNames(b *bench) {
	b.super(
		"CREATE ROLE owning; CREATE ROLE person LOGIN; ALTER DATABASE platform OWNER TO owning; GRANT CREATE ON DATABASE platform TO operator",
	)
	s := b.open(nil)
	_, err := s.Apply(b.Context(), want("victim"))
	require.NoError(b, err)
	before := b.everything()
	for _, schema := range []string{"operator", "postgres", "owning", "person", "prod_victim_app", "prod_victim_anon"} {
		for _, act := range []func(database.Want) error{
			func(w database.Want) error { return s.Check(b.Context(), w) },
			func(w database.Want) error { _, err := s.Apply(b.Context(), w); return err },
		} {
			err := act(named(schema))
			require.ErrorIs(b, err, external.ErrReserved, schema)
			require.Equal(b, external.ReasonReserved, external.Reason(err))
			require.True(b, external.Lasting(err))
			require.ErrorContains(b, err, "schema "+schema+" has the name of a role")
			require.ErrorContains(b, err, "spec.database.schemaName")
		}
	}
	require.Equal(b, before, b.everything())
	// An administrator of later has the name of a schema of earlier.
	_, err = s.Apply(b.Context(), named("late"))
	require.NoError(b, err)
	b.super("CREATE ROLE late LOGIN")
	require.ErrorIs(b, s.Check(b.Context(), named("late")), external.ErrReserved)
	b.super("DROP ROLE late")
	require.NoError(b, s.Check(b.Context(), named("late")))
}

// roleNamedAsASchema is the other way round: the schema is first.
func roleNamedAsASchema(b *bench) {
	s := b.open(nil)
	_, err := s.Apply(b.Context(), named("prod_next_app"))
	require.NoError(b, err)
	before := b.everything()
	_, err = s.Apply(b.Context(), want("next"))
	require.ErrorIs(b, err, external.ErrReserved)
	require.ErrorContains(b, err, "role prod_next_app has the name of a schema")
	require.Equal(b, before, b.everything())
}

// trap fills a schema with functions that the administrator's statements might mean, whose
// bodies give rights away.
func (b *bench) trap(schema string) (sprung func() bool) {
	b.Helper()
	b.super("CREATE TABLE IF NOT EXISTS public.sprung (by text); GRANT INSERT ON public.sprung TO PUBLIC; TRUNCATE public.sprung")
	for _, f := range []string{
		"obj_description(oid, text) RETURNS text", "shobj_description(oid, text) RETURNS text", "has_database_privilege(text, text) RETURNS bool",
		"has_schema_privilege(oid, oid, unknown_text) RETURNS bool", "current_setting(unknown_text) RETURNS text", "pg_get_userbyid(oid) RETURNS name",
		"pg_has_role(name, oid, unknown_text) RETURNS bool", "hashtextextended(text, int) RETURNS bigint", "pg_advisory_xact_lock(int) RETURNS bool",
	} {
		b.super(
			"CREATE FUNCTION " + schema + "." + strings.ReplaceAll(
				f,
				"unknown_text",
				"varchar",
			) + " LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.sprung VALUES (current_user); RETURN NULL; END $$",
		)
	}
	return func() bool { return len(b.rows("SELECT by FROM public.sprung")) > 0 }
}

// oldSchemaOfTheAdministrator was made before such names were refused.
func oldSchemaOfTheAdministrator(b *bench) {
	b.super("CREATE SCHEMA operator; GRANT USAGE ON SCHEMA operator TO PUBLIC")
	sprung := b.trap("operator")
	b.Cleanup(func() { _ = b.pg.SQL(context.WithoutCancel(b.Context()), b.database, "DROP SCHEMA operator CASCADE") })
	tr := &pinned{}
	for _, parameters := range []string{"", "?search_path=operator", "?options=-csearch_path%3Doperator"} {
		s, err := database.Open(b.Context(), database.Options{URL: b.url() + parameters, Tracer: tr})
		require.NoError(b, err)
		b.Cleanup(s.Close)
		w := want("trapped")
		_, err = s.Apply(b.Context(), w)
		require.NoError(b, err)
		_, err = s.Delete(b.Context(), w, false)
		require.NoError(b, err)
	}
	require.False(b, sprung())
	require.NotZero(b, tr.seen)
	require.Empty(b, tr.loose)
}

// pinned notes the statements of connections whose search path is not pinned.
type pinned struct {
	mu    sync.Mutex
	seen  int
	loose []string
}

func (p *pinned) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if conn.Config().RuntimeParams["search_path"] != "pg_catalog" {
		p.loose = append(p.loose, data.SQL)
	}
	return ctx
}

func (p *pinned) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// all notes every statement.
type all struct {
	mu         sync.Mutex
	statements []string
}

func (a *all) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statements = append(a.statements, data.SQL)
	return ctx
}

func (a *all) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

var (
	call     = regexp.MustCompile(`([a-z_.]+)\(`)
	relation = regexp.MustCompile(`(?:FROM|JOIN)\s+(pg_[a-z_.]+)`)
)

// statementsAreQualified holds whatever the search path is.
func statementsAreQualified(b *bench) {
	tr := &all{}
	s, w := b.open(tr), want("qualified")
	for range 2 {
		_, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
	}
	w.AnonRead = false
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	_, err = s.Delete(b.Context(), w, true)
	require.NoError(b, err)
	_, err = s.Apply(b.Context(), w)
	require.NoError(b, err)
	_, err = s.Delete(b.Context(), w, false)
	require.NoError(b, err)
	calls := 0
	for _, statement := range tr.statements {
		for _, found := range call.FindAllStringSubmatch(statement, -1) {
			calls++
			if syntax := []string{"coalesce"}; !slices.Contains(syntax, found[1]) {
				require.True(b, strings.HasPrefix(found[1], "pg_catalog."), "%s in %s", found[1], statement)
			}
		}
		for _, found := range relation.FindAllStringSubmatch(statement, -1) {
			require.True(b, strings.HasPrefix(found[1], "pg_catalog."), "%s in %s", found[1], statement)
		}
	}
	require.Greater(b, calls, 50)
}

// functionsOfPublic is the same where every role may make functions.
func functionsOfPublic(b *bench) {
	s, evil := b.open(nil), want("public-evil")
	evil.Schema, evil.App, evil.Anon = "prod_pevil", "prod_pevil_app", "prod_pevil_anon"
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	b.super("CREATE TABLE IF NOT EXISTS public.sprung (by text); GRANT INSERT ON public.sprung TO PUBLIC; TRUNCATE public.sprung")
	conn := b.login(s.URL(evil))
	b.exec(
		conn,
		`CREATE FUNCTION public.obj_description(oid, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.sprung VALUES (current_user); RETURN ''; END $$`,
	)
	b.exec(
		conn,
		`CREATE FUNCTION public.shobj_description(oid, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.sprung VALUES (current_user); RETURN ''; END $$`,
	)
	_, err = s.Apply(b.Context(), want("public_victim"))
	require.NoError(b, err)
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Empty(b, b.rows("SELECT by FROM public.sprung"))
}

// owned returns everything of the database that a role of administrators owns.
func (b *bench) owned() []string {
	b.Helper()
	return b.rows(`
SELECT 'relation ' || oid::regclass || ' ' || pg_get_userbyid(relowner) FROM pg_class WHERE pg_get_userbyid(relowner) IN ('operator', 'postgres') AND relnamespace::regnamespace::text NOT LIKE 'pg\_%'
UNION ALL SELECT 'function ' || oid::regprocedure || ' ' || pg_get_userbyid(proowner) FROM pg_proc WHERE pg_get_userbyid(proowner) IN ('operator', 'postgres') AND pronamespace::regnamespace::text NOT LIKE 'pg\_%'
UNION ALL SELECT 'type ' || oid::regtype || ' ' || pg_get_userbyid(typowner) FROM pg_type WHERE pg_get_userbyid(typowner) IN ('operator', 'postgres') AND typnamespace::regnamespace::text NOT LIKE 'pg\_%'
UNION ALL SELECT 'large object ' || oid || ' ' || pg_get_userbyid(lomowner) FROM pg_largeobject_metadata WHERE pg_get_userbyid(lomowner) IN ('operator', 'postgres')
ORDER BY 1`)
}

// heirs get nothing: an object that runs with the rights of its owner would have the rights
// of an administrator once its owner is dropped.
func heirs(b *bench) {
	b.super("GRANT postgres TO operator") // the widest that an administrator may have
	b.Cleanup(func() { _ = b.pg.SQL(context.WithoutCancel(b.Context()), b.database, "REVOKE postgres FROM operator") })
	s, evil := b.open(nil), want("heirs")
	before := b.owned()
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	conn := b.login(s.URL(evil))
	b.exec(conn, "CREATE FUNCTION public.raise() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'SELECT'")
	b.exec(conn, "CREATE FUNCTION prod_heirs.raise() RETURNS int LANGUAGE sql IMMUTABLE SECURITY DEFINER AS 'SELECT 1'")
	b.exec(
		conn,
		"CREATE TABLE public.trap (id int); CREATE INDEX ON public.trap ((id + prod_heirs.raise())); CREATE VIEW public.seen AS SELECT 1 AS one; CREATE TYPE public.mood AS ENUM ('ok')",
	)
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Equal(b, before, b.owned())
	require.Empty(b, b.left("prod_heirs"))
}

// left are the schemas and roles whose names begin so.
func (b *bench) left(prefix string) []string {
	b.Helper()
	return b.rows(
		"SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1) UNION ALL SELECT rolname::text FROM pg_roles WHERE starts_with(rolname, $1)",
		prefix,
	)
}

// largeObjectElsewhere keeps a role for as long as it is there, and nothing else: the error
// names it, and where it is.
func largeObjectElsewhere(b *bench) {
	require.NoError(b, b.pg.SQL(b.Context(), "postgres", "CREATE DATABASE billing"))
	s, evil := b.open(nil), want("hoarder")
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	elsewhere := b.login(strings.Replace(s.PostgRESTURL(evil), "/platform", "/billing", 1))
	var oid uint32
	require.NoError(b, elsewhere.QueryRow(b.Context(), "SELECT lo_create(0)").Scan(&oid))
	for range 2 {
		_, err = s.Delete(b.Context(), evil, false)
		require.ErrorContains(b, err, "role prod_hoarder_app cannot be dropped")
		require.ErrorContains(b, err, fmt.Sprintf("large object %d in database billing", oid))
		require.ErrorContains(b, err, `DROP OWNED BY "prod_hoarder_app" in database "billing"`)
		require.Equal(b, []string{"prod_hoarder_app"}, b.left("prod_hoarder"), "all else is gone")
		_, err = pgx.Connect(b.Context(), s.URL(evil))
		require.ErrorContains(b, err, "not permitted to log in")
	}
	require.Error(b, elsewhere.Ping(b.Context()), "its session is over")
	require.NoError(b, b.pg.SQL(b.Context(), "billing", "DROP OWNED BY prod_hoarder_app"))
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Empty(b, b.left("prod_hoarder"))
}

// rightsElsewhere keep no role: another tenant has granted them, on an object of its own in
// another database, to the roles of the victim.
func rightsElsewhere(b *bench) {
	require.NoError(b, b.pg.SQL(b.Context(), "postgres", "CREATE DATABASE ledger"))
	s, evil, victim := b.open(nil), want("giver"), want("till")
	for _, w := range []database.Want{evil, victim} {
		_, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
	}
	elsewhere := b.login(strings.Replace(s.PostgRESTURL(evil), "/platform", "/ledger", 1))
	b.exec(elsewhere, "SELECT lo_create(777)")
	b.exec(elsewhere, "GRANT ALL ON LARGE OBJECT 777 TO prod_till_app, prod_till_anon")
	// The deletion of an object of the same names, which are another's, takes no right from them.
	stranger := victim
	stranger.Mark.Namespace, stranger.Mark.UID = "evil", "uid-stranger"
	_, err := s.Delete(b.Context(), stranger, false)
	require.NoError(b, err)
	var rights string
	require.NoError(b, elsewhere.QueryRow(b.Context(), "SELECT lomacl::text FROM pg_largeobject_metadata WHERE oid = 777").Scan(&rights))
	require.Contains(b, rights, "prod_till_app")
	_, err = s.Delete(b.Context(), victim, false)
	require.NoError(b, err)
	require.Empty(b, b.left("prod_till"))
	var owner string
	require.NoError(
		b,
		elsewhere.QueryRow(b.Context(), "SELECT pg_get_userbyid(lomowner)::text FROM pg_largeobject_metadata WHERE oid = 777").Scan(&owner),
	)
	require.Equal(b, "prod_giver_app", owner)
}

// moreTablesThanLocks: a schema with many tables goes in several transactions, as one has
// not enough locks for it.
func moreTablesThanLocks(b *bench) {
	statements := &all{}
	s, evil := b.open(statements), want("crowd")
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	b.exec(b.login(s.URL(evil)), "DO $$BEGIN FOR i IN 1..1200 LOOP EXECUTE 'CREATE TABLE t' || i || ' (id int)'; END LOOP; END$$")
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Empty(b, b.left("prod_crowd"))
	var drops []int
	for _, sql := range statements.statements {
		if tables, ok := strings.CutPrefix(sql, "DROP TABLE "); ok {
			drops = append(drops, 1+strings.Count(tables, ", "))
		}
	}
	require.Equal(b, []int{500, 500}, drops, "the rest goes with the schema")
}

func largeObjectHere(b *bench) {
	s, evil := b.open(nil), want("lobs")
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	b.exec(b.login(s.URL(evil)), "SELECT lo_create(0)")
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Empty(b, b.left("prod_lobs"))
	require.Empty(b, b.rows("SELECT oid::text FROM pg_largeobject_metadata"))
}

// sessionWithALock does not outlive its role.
func sessionWithALock(b *bench) {
	s, evil := b.open(nil), want("locker")
	_, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	conn := b.login(s.URL(evil))
	b.exec(conn, "CREATE TABLE held (id int)")
	b.exec(conn, "BEGIN; LOCK TABLE held")
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
	require.Empty(b, b.left("prod_locker"))
}

// lockOfAnother is waited for, and named: the role may be anybody's.
func lockOfAnother(b *bench) {
	s, w := b.open(nil), want("locked")
	_, err := s.Apply(b.Context(), w)
	require.NoError(b, err)
	b.exec(b.login(s.URL(w)), "CREATE TABLE held (id int)")
	super := b.login(strings.Replace(b.pg.URL(b.database), "trueup@", "postgres@", 1))
	b.exec(super, "BEGIN; LOCK TABLE prod_locked.held")
	_, err = s.Delete(b.Context(), w, false)
	require.ErrorContains(b, err, "held is locked by role postgres")
	require.ErrorContains(b, err, "in database platform, schema prod_locked")
	b.exec(super, "ROLLBACK")
	_, err = s.Delete(b.Context(), w, false)
	require.NoError(b, err)
}

// viewOfAnother depends on a table that goes. It is not dropped with it.
func viewOfAnother(b *bench) {
	s, evil, victim := b.open(nil), want("lender"), want("borrower")
	for _, w := range []database.Want{evil, victim} {
		_, err := s.Apply(b.Context(), w)
		require.NoError(b, err)
	}
	b.exec(b.login(s.URL(evil)), "CREATE TABLE public.lent (id int); GRANT SELECT ON public.lent TO prod_borrower_app")
	b.exec(b.login(s.URL(victim)), "CREATE VIEW mine AS SELECT * FROM public.lent")
	_, err := s.Delete(b.Context(), evil, false)
	require.ErrorContains(b, err, "drop what role prod_lender_app owns")
	require.ErrorContains(b, err, "view prod_borrower.mine depends on table public.lent")
	require.Equal(b, []string{"mine"}, b.rows("SELECT viewname::text FROM pg_views WHERE schemaname = 'prod_borrower'"))
	b.exec(b.login(s.URL(victim)), "DROP VIEW mine")
	_, err = s.Delete(b.Context(), evil, false)
	require.NoError(b, err)
}

// allConnections uses up the connections of one role, not of the server.
func allConnections(b *bench) {
	s, err := database.Open(b.Context(), database.Options{URL: b.url(), RoleConnections: 3})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	evil := want("crowd")
	_, err = s.Apply(b.Context(), evil)
	require.NoError(b, err)
	for range 3 {
		b.login(s.URL(evil))
	}
	_, err = pgx.Connect(b.Context(), s.URL(evil))
	require.ErrorContains(b, err, "too many connections for role")
	_, err = b.login(strings.Replace(b.pg.URL(b.database), "trueup@", "postgres@", 1)).Exec(b.Context(), "SELECT")
	require.NoError(b, err)
	done, err := s.Apply(b.Context(), evil)
	require.NoError(b, err, "its password is known to be right")
	require.Empty(b, done)
	b.super("ALTER ROLE prod_crowd_app CONNECTION LIMIT -1")
	done, err = s.Apply(b.Context(), evil)
	require.NoError(b, err)
	require.Equal(b, []string{"limit the connections of role prod_crowd_app"}, done)
	require.Equal(b, []string{"50"}, b.limitOf("unnamed"))
}

// limitOf returns the connections that an app may have without a setting.
func (b *bench) limitOf(name string) []string {
	b.Helper()
	_, err := b.open(nil).Apply(b.Context(), want(name))
	require.NoError(b, err)
	return b.rows("SELECT rolconnlimit::text FROM pg_roles WHERE rolname = $1", "prod_"+name+"_app")
}

func statementsWithoutAnEnd(b *bench) {
	s, err := database.Open(b.Context(), database.Options{URL: b.url(), RoleStatementTimeout: 100 * time.Millisecond})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	evil := want("endless")
	_, err = s.Apply(b.Context(), evil)
	require.NoError(b, err)
	_, err = b.login(s.URL(evil)).Exec(b.Context(), "SELECT pg_sleep(60)")
	require.ErrorContains(b, err, "statement timeout")
	b.super("ALTER ROLE prod_endless_app RESET statement_timeout")
	done, err := s.Apply(b.Context(), evil)
	require.NoError(b, err)
	require.Equal(b, []string{"limit the statements of role prod_endless_app"}, done)
}

// otherDatabases that every role may connect to are named to the administrators, once.
func otherDatabases(b *bench) {
	require.NoError(b, b.pg.SQL(b.Context(), "postgres", "CREATE DATABASE crm"))
	var log bytes.Buffer
	s, err := database.Open(b.Context(), database.Options{URL: b.url(), Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	for range 2 {
		_, err = s.Apply(b.Context(), want("open"))
		require.NoError(b, err)
	}
	require.Equal(b, 1, strings.Count(log.String(), "REVOKE CONNECT ON DATABASE"))
	require.Contains(b, log.String(), `"crm"`)
	log.Reset()
	b.super("REVOKE CONNECT ON DATABASE crm FROM PUBLIC")
	_, err = s.Apply(b.Context(), want("open"))
	require.NoError(b, err)
	require.NotContains(b, log.String(), `"crm"`)
	require.Contains(b, log.String(), `"postgres"`)
}

// errorsNameNoAdministrator is what a tenant reads of a server that is not there, or refuses.
func errorsNameNoAdministrator(b *bench) {
	address := fmt.Sprintf("127.0.0.1:%d", b.pg.Port)
	for url, reason := range map[string]string{
		"postgresql://operator:wr0ng@" + address + "/platform":                 external.ReasonDenied,
		"postgresql://operator:adm1n@" + address + "/nowhere":                  external.ReasonDenied,
		"postgresql://nobody:adm1n@" + address + "/platform":                   external.ReasonDenied,
		"postgresql://operator:adm1n@127.0.0.1:1/platform":                     external.ReasonUnreachable,
		"postgresql://operator:adm1n@db.invalid:5432/platform":                 external.ReasonUnreachable,
		"postgresql://operator:adm1n@" + silent(b) + "/platform":               external.ReasonUnreachable,
		"postgresql://operator:adm1n@" + address + "/platform?sslmode=require": external.ReasonUnreachable,
		"postgresql://operator:adm1n@127.0.0.1:1,127.0.0.1:2/platform":         external.ReasonUnreachable,
	} {
		var log bytes.Buffer
		s, err := database.Open(b.Context(), database.Options{URL: url, Timeout: time.Second, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		require.NoError(b, err)
		b.Cleanup(s.Close)
		_, err = s.Apply(b.Context(), want("errors"))
		require.Error(b, err)
		require.Equal(b, reason, external.Reason(err), err.Error())
		for _, secret := range []string{"operator ", "operator\"", "=operator", "nobody", "127.0.0.1", "db.invalid", "adm1n", "wr0ng"} {
			require.NotContains(b, err.Error(), secret)
		}
		require.NotEmpty(b, log.String(), url)
		require.NotContains(b, log.String(), "adm1n")
		require.NotContains(b, log.String(), "wr0ng")
	}
}

// messagesNameNoAdministrator covers the messages of the server itself.
func messagesNameNoAdministrator(b *bench) {
	b.super("CREATE ROLE crowded LOGIN CREATEROLE CONNECTION LIMIT 0 PASSWORD 'adm1n'")
	s := (&bench{T: b.T, pg: b.pg, database: b.database, admin: "crowded"}).open(nil)
	_, err := s.Apply(b.Context(), want("messages"))
	require.ErrorIs(b, err, external.ErrUnreachable)
	require.ErrorContains(b, err, "too many connections for role the administrator")
	require.NotContains(b, err.Error(), "crowded")
}
