package database

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// State is how the schema and the roles are.
type State struct {
	// Admin is the administrator, with what it may do.
	Admin                               string
	Superuser, CreateRole, CreateSchema bool
	// Version is that of the server, such as 150004.
	Version int
	// Heir is whether the administrator may give things to the role postgres.
	Heir bool

	Schema Schema
	App    Role
	Anon   Role

	// AnonInApp is whether the app's role has the rights of anonymous readers.
	AnonInApp bool
	// Defaults are the default privileges for tables of the schema that the administrator
	// or the app's role has given to either role.
	Defaults []Default
	// AnonTables counts the tables that anonymous readers were given the right to select
	// from.
	AnonTables int
	// Strangers counts what is in the schema and belongs to neither the administrator nor
	// one of the roles.
	Strangers int
	// PasswordDiffers is whether the server refuses the password of the app's role.
	PasswordDiffers bool
}

// Schema is a schema as it is.
type Schema struct {
	Exists         bool
	Comment, Owner string
}

// Role is a role as it is.
type Role struct {
	Exists, Login bool
	Comment       string
	// SearchPath is the role's own setting.
	SearchPath string
	// Usage and Create are its rights on the schema.
	Usage, Create bool
	// Admin is whether the administrator has the rights of the role.
	Admin bool
}

// Default is a default privilege for tables: what By makes, To has the Privilege on.
type Default struct{ By, To, Privilege string }

const observeState = `
SELECT me.rolname, me.rolsuper, me.rolcreaterole, has_database_privilege(current_database(), 'CREATE'), current_setting('server_version_num')::int,
	coalesce((SELECT pg_has_role(current_user, heir.oid, 'USAGE') FROM pg_roles heir WHERE heir.rolname = 'postgres'), false),
	n.oid IS NOT NULL, coalesce(obj_description(n.oid, 'pg_namespace'), ''), coalesce(pg_get_userbyid(n.nspowner), ''),
	EXISTS (SELECT FROM pg_auth_members WHERE roleid = anon.oid AND member = app.oid),
	(SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (
		EXISTS (SELECT FROM aclexplode(c.relacl) x WHERE x.grantee = anon.oid AND x.privilege_type = 'SELECT') OR
		EXISTS (SELECT FROM pg_attribute a, aclexplode(a.attacl) x WHERE a.attrelid = c.oid AND x.grantee = anon.oid AND x.privilege_type = 'SELECT'))),
	(SELECT count(*) FROM (SELECT relowner AS owner FROM pg_class WHERE relnamespace = n.oid UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = n.oid) x
		WHERE owner NOT IN (me.oid, coalesce(app.oid, 0), coalesce(anon.oid, 0))),
	coalesce((SELECT array_agg(pg_get_userbyid(d.defaclrole) || ' ' || pg_get_userbyid(x.grantee) || ' ' || x.privilege_type ORDER BY 1)
		FROM pg_default_acl d, aclexplode(d.defaclacl) x
		WHERE d.defaclnamespace = n.oid AND d.defaclobjtype = 'r' AND d.defaclrole IN (me.oid, app.oid) AND x.grantee IN (app.oid, anon.oid) AND x.grantee <> d.defaclrole), '{}')
FROM pg_roles me
	LEFT JOIN pg_namespace n ON n.nspname = $1
	LEFT JOIN pg_roles app ON app.rolname = $2
	LEFT JOIN pg_roles anon ON anon.rolname = $3
WHERE me.rolname = current_user`

const observeRole = `
SELECT r.rolcanlogin, coalesce(shobj_description(r.oid, 'pg_authid'), ''),
	coalesce((SELECT substr(c, length('search_path=') + 1) FROM pg_db_role_setting s, unnest(s.setconfig) c WHERE s.setrole = r.oid AND s.setdatabase = 0 AND c LIKE 'search\_path=%'), ''),
	coalesce(has_schema_privilege(r.oid, n.oid, 'USAGE'), false), coalesce(has_schema_privilege(r.oid, n.oid, 'CREATE'), false),
	pg_has_role(current_user, r.oid, 'USAGE')
FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = $1
WHERE r.rolname = $2`

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// observe reads all but whether the password is right.
func observe(ctx context.Context, db querier, want Want) (State, error) {
	var s State
	var defaults []string
	err := db.QueryRow(ctx, observeState, want.Schema, want.App, want.Anon).Scan(
		&s.Admin, &s.Superuser, &s.CreateRole, &s.CreateSchema, &s.Version, &s.Heir,
		&s.Schema.Exists, &s.Schema.Comment, &s.Schema.Owner, &s.AnonInApp, &s.AnonTables, &s.Strangers, &defaults)
	if err != nil {
		return State{}, err
	}
	for _, text := range defaults {
		var d Default
		if _, err := fmt.Sscan(text, &d.By, &d.To, &d.Privilege); err != nil {
			return State{}, fmt.Errorf("default privilege %q: %w", text, err)
		}
		s.Defaults = append(s.Defaults, d)
	}
	for name, into := range map[string]*Role{want.App: &s.App, want.Anon: &s.Anon} {
		rows, err := db.Query(ctx, observeRole, want.Schema, name)
		if err != nil {
			return State{}, err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Role, err error) {
			r.Exists = true
			return r, row.Scan(&r.Login, &r.Comment, &r.SearchPath, &r.Usage, &r.Create, &r.Admin)
		})
		if err != nil {
			return State{}, err
		}
		if len(found) > 0 {
			*into = found[0]
		}
	}
	return s, nil
}

// foreign returns an error that names what exists and is of another, nil if nothing is.
func (s State) foreign(want Want) error {
	for _, part := range s.parts(want) {
		if part.exists && want.Mark.Claim(part.comment) == outside.Foreign {
			return outside.Owned(part.what, part.comment)
		}
	}
	return nil
}

type part struct {
	what, kind, name string
	exists           bool
	comment          string
	role             *Role // nil for the schema
}

func (s State) parts(want Want) []part {
	return []part{
		{"schema " + want.Schema, "SCHEMA", want.Schema, s.Schema.Exists, s.Schema.Comment, nil},
		{"role " + want.App, "ROLE", want.App, s.App.Exists, s.App.Comment, &s.App},
		{"role " + want.Anon, "ROLE", want.Anon, s.Anon.Exists, s.Anon.Comment, &s.Anon},
	}
}
