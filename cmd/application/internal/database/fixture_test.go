package database_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// bench is a database with an administrator that has CREATEROLE, and CREATE on the
// database, and nothing else.
type bench struct {
	*testing.T

	pg       *pgtest.Server
	database string
	admin    string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, pg: pgtest.Start(t, pgtest.Options{Passwords: true}), database: "platform", admin: "operator"}
	b.super("CREATE DATABASE platform")
	b.super("CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO operator")
	return b
}

// super runs a statement as the superuser.
func (b *bench) super(statement string) {
	b.Helper()
	database := "postgres"
	if !strings.HasPrefix(statement, "CREATE DATABASE") && !strings.HasPrefix(statement, "CREATE ROLE operator") {
		database = b.database
	}
	require.NoError(b, b.pg.SQL(b.Context(), database, statement))
}

func (b *bench) url() string {
	return fmt.Sprintf("postgresql://%s:adm1n@127.0.0.1:%d/%s", b.admin, b.pg.Port, b.database)
}

func (b *bench) open(tracer pgx.QueryTracer) *database.Server {
	b.Helper()
	s, err := database.Open(b.Context(), database.Options{URL: b.url(), Tracer: tracer})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	return s
}

func want(name string) database.Want {
	return database.Want{
		Schema: "prod_" + name, App: "prod_" + name + "_app", Anon: "prod_" + name + "_anon", Password: database.NewPassword(), AnonRead: true,
		Mark: external.Mark{Cluster: "c1", Namespace: "team", Name: name, UID: "uid-" + name},
	}
}

// rows returns what a query of the superuser returns, one line each.
func (b *bench) rows(query string, args ...any) (lines []string) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), strings.Replace(b.pg.URL(b.database), "trueup@", "postgres@", 1))
	require.NoError(b, err)
	defer conn.Close(context.WithoutCancel(b.Context()))
	rows, err := conn.Query(b.Context(), query, args...)
	require.NoError(b, err)
	lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err)
	return lines
}

// everything returns all roles, memberships, schemas, tables, rights and comments whose
// names have not one of the prefixes.
func (b *bench) everything(but ...string) []string {
	b.Helper()
	all := b.rows(`
SELECT 'role ' || rolname || ' ' || rolcanlogin || rolsuper || rolcreaterole || ' ' || coalesce(rolpassword, '') || ' ' || coalesce(shobj_description(oid, 'pg_authid'), '') FROM pg_authid WHERE rolname NOT LIKE 'pg\_%'
UNION ALL SELECT 'member ' || pg_get_userbyid(roleid) || ' of ' || pg_get_userbyid(member) FROM pg_auth_members WHERE pg_get_userbyid(roleid) NOT LIKE 'pg\_%'
UNION ALL SELECT 'setting ' || pg_get_userbyid(setrole) || ' ' || setconfig::text FROM pg_db_role_setting
UNION ALL SELECT 'schema ' || nspname || ' ' || pg_get_userbyid(nspowner) || ' ' || coalesce((SELECT array_agg(x::text ORDER BY x::text)::text FROM unnest(nspacl) x), '') || ' ' || coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%'
UNION ALL SELECT 'default ' || defaclnamespace::regnamespace || ' ' || pg_get_userbyid(defaclrole) || ' ' || (SELECT array_agg(x::text ORDER BY x::text)::text FROM unnest(defaclacl) x) FROM pg_default_acl
UNION ALL SELECT 'table ' || relnamespace::regnamespace || '.' || relname || ' ' || pg_get_userbyid(relowner) || ' ' || coalesce((SELECT array_agg(x::text ORDER BY x::text)::text FROM unnest(relacl) x), '') FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') AND relnamespace::regnamespace::text NOT LIKE 'pg\_%'
ORDER BY 1`)
	var left []string
	for _, line := range all {
		keep := true
		for _, prefix := range but {
			keep = keep && !strings.Contains(line, prefix)
		}
		if keep {
			left = append(left, line)
		}
	}
	return left
}

// trace counts statements, and ends the program at one of them.
type trace struct {
	mu     sync.Mutex
	writes []string
	reads  int
	// crash ends the connection before or after the write of this number, from 1.
	crash  int
	after  bool
	cancel context.CancelFunc
}

func (tr *trace) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	verb, _, _ := strings.Cut(strings.TrimSpace(data.SQL), " ")
	verb, _, _ = strings.Cut(verb, "\n")
	switch strings.ToUpper(strings.TrimSuffix(verb, ";")) {
	case "SELECT":
		tr.reads++
		return ctx
	case "BEGIN", "ROLLBACK":
		return ctx
	}
	tr.writes = append(tr.writes, data.SQL)
	if len(tr.writes) == tr.crash && !tr.after {
		tr.cancel()
	}
	return context.WithValue(ctx, traceKey{}, len(tr.writes))
}

func (tr *trace) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if number, ok := ctx.Value(traceKey{}).(int); ok && number == tr.crash && tr.after {
		tr.cancel()
	}
}

type traceKey struct{}

const soon = 10 * time.Second
