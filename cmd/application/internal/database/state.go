package database

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// State is how the schema and the roles are.
type State struct {
	// Admin is the administrator, with what it may do.
	Admin                               string
	Superuser, CreateRole, CreateSchema bool
	// Version is the version of the server, such as 150004.
	Version int
	// Database is the name of the database.
	Database string
	// SchemaIsRole is whether a role of the server has the schema's name, which then is the
	// first place where that role looks for things, and SchemaRole its comment.
	SchemaIsRole bool
	SchemaRole   string
	// RoleSchemas are the schemas that have the name of one of the roles.
	RoleSchemas []string
	// Open are the other databases of the server that every role may connect to.
	Open []string

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
	// Foreign counts the objects in the schema that belong to neither of the roles.
	Foreign int
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
	// SearchPath and StatementTimeout are the role's own settings.
	SearchPath, StatementTimeout string
	// Connections is how many it may have at a time, -1: any number.
	Connections int
	// Elsewhere is what depends on the role in other databases of the server.
	Elsewhere []Dependent
	// Usage and Create are its rights on the schema.
	Usage, Create bool
	// Admin is whether the administrator has the rights of the role.
	Admin bool
}

// Dependent is something in another database that keeps a role from being dropped.
type Dependent struct {
	// Catalog is the table of pg_catalog that it is in, such as pg_proc.
	Catalog string
	// OID identifies it there: its name shows in its own database alone.
	OID      uint32
	Database string
	// Owned is whether the role owns it. Otherwise the role has rights on it, granted by its owner.
	Owned bool
}

func (d Dependent) String() string {
	kind, known := map[string]string{
		"pg_largeobject": "large object", "pg_largeobject_metadata": "large object", "pg_class": "relation with OID", "pg_proc": "function with OID",
		"pg_type": "type with OID", "pg_namespace": "schema with OID", "pg_default_acl": "default privilege with OID",
	}[d.Catalog]
	if !known {
		kind = "entry of " + d.Catalog + " with OID"
	}
	text := fmt.Sprintf("%s %d in database %s", kind, d.OID, d.Database)
	if !d.Owned {
		return "rights on " + text
	}
	return text
}

// granted returns the other databases in which a role has rights, but owns nothing.
func (r Role) granted() (databases []string) {
	for _, d := range r.Elsewhere {
		owns := slices.ContainsFunc(r.Elsewhere, func(other Dependent) bool { return other.Owned && other.Database == d.Database })
		if !owns && !slices.Contains(databases, d.Database) {
			databases = append(databases, d.Database)
		}
	}
	return databases
}

// Default is a default privilege for tables: what By makes, To has the Privilege on.
type Default struct{ By, To, Privilege string }

// Every name is qualified with pg_catalog: a statement of an administrator never refers to
// an object that an application has made, whatever the search path is.
const observeState = `
SELECT me.rolname, me.rolsuper, me.rolcreaterole, pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
	pg_catalog.current_database(),
	n.oid IS NOT NULL, coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace'::pg_catalog.name), ''), coalesce(pg_catalog.pg_get_userbyid(n.nspowner), ''),
	EXISTS (SELECT FROM pg_catalog.pg_auth_members WHERE roleid = anon.oid AND member = app.oid),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (
		EXISTS (SELECT FROM pg_catalog.aclexplode(c.relacl) x WHERE x.grantee = anon.oid AND x.privilege_type = 'SELECT') OR
		EXISTS (SELECT FROM pg_catalog.pg_attribute a, pg_catalog.aclexplode(a.attacl) x WHERE a.attrelid = c.oid AND x.grantee = anon.oid AND x.privilege_type = 'SELECT'))),
	(SELECT pg_catalog.count(*) FROM (SELECT relowner AS owner FROM pg_catalog.pg_class WHERE relnamespace = n.oid UNION ALL SELECT proowner FROM pg_catalog.pg_proc WHERE pronamespace = n.oid) x
		WHERE owner NOT IN (coalesce(app.oid, 0), coalesce(anon.oid, 0))),
	coalesce((SELECT pg_catalog.array_agg(pg_catalog.pg_get_userbyid(d.defaclrole) || ' ' || pg_catalog.pg_get_userbyid(x.grantee) || ' ' || x.privilege_type ORDER BY 1)
		FROM pg_catalog.pg_default_acl d, pg_catalog.aclexplode(d.defaclacl) x
		WHERE d.defaclnamespace = n.oid AND d.defaclobjtype = 'r' AND d.defaclrole IN (me.oid, app.oid) AND x.grantee IN (app.oid, anon.oid) AND x.grantee <> d.defaclrole), '{}'),
	EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = $1),
	coalesce((SELECT pg_catalog.shobj_description(r.oid, 'pg_authid'::pg_catalog.name) FROM pg_catalog.pg_roles r WHERE r.rolname = $1), ''),
	coalesce((SELECT pg_catalog.array_agg(s.nspname::pg_catalog.text ORDER BY 1) FROM pg_catalog.pg_namespace s WHERE s.nspname IN ($2, $3)), '{}'),
	coalesce((SELECT pg_catalog.array_agg(d.datname::pg_catalog.text ORDER BY 1) FROM pg_catalog.pg_database d
		WHERE d.datallowconn AND d.datname <> pg_catalog.current_database()
			AND pg_catalog.has_database_privilege('public', d.oid, 'CONNECT')), '{}'),
	coalesce((SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
		'name', r.rolname,
		'role', pg_catalog.json_build_object(
			'login', r.rolcanlogin,
			'comment', coalesce(pg_catalog.shobj_description(r.oid, 'pg_authid'::pg_catalog.name), ''),
			'usage', coalesce(pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE'), false),
			'create', coalesce(pg_catalog.has_schema_privilege(r.oid, n.oid, 'CREATE'), false),
			'admin', pg_catalog.pg_has_role(current_user, r.oid, 'USAGE'), 'connections', r.rolconnlimit),
		'settings', (SELECT pg_catalog.array_agg(c) FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c
			WHERE s.setrole = r.oid AND s.setdatabase = 0),
		'elsewhere', (
			SELECT pg_catalog.array_agg(
				pg_catalog.format('%s %s %s %s', d.classid::pg_catalog.regclass, d.objid, d.deptype, b.datname) ORDER BY d.classid, d.objid)
			FROM pg_catalog.pg_shdepend d JOIN pg_catalog.pg_database b ON b.oid = d.dbid
			WHERE d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass AND d.refobjid = r.oid AND b.datname <> pg_catalog.current_database())))
		FROM pg_catalog.pg_roles r WHERE r.rolname IN ($2, $3)), '[]')
FROM pg_catalog.pg_roles me
	LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $1
	LEFT JOIN pg_catalog.pg_roles app ON app.rolname = $2
	LEFT JOIN pg_catalog.pg_roles anon ON anon.rolname = $3
WHERE me.rolname = current_user`

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// observedRole is a role in the answer, whose settings and dependents are texts.
type observedRole struct {
	Name                string
	Role                Role
	Settings, Elsewhere []string
}

// observe reads all but whether the password is right.
func observe(ctx context.Context, db querier, want Want) (State, error) {
	var s State
	var defaults []string
	var roles []observedRole
	err := db.QueryRow(ctx, observeState, want.Schema, want.App, want.Anon).Scan(
		&s.Admin, &s.Superuser, &s.CreateRole, &s.CreateSchema, &s.Version, &s.Database,
		&s.Schema.Exists, &s.Schema.Comment, &s.Schema.Owner, &s.AnonInApp, &s.AnonTables, &s.Foreign, &defaults,
		&s.SchemaIsRole, &s.SchemaRole, &s.RoleSchemas, &s.Open, &roles)
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
	for _, found := range roles {
		role := &s.App
		if found.Name == want.Anon {
			role = &s.Anon
		}
		*role = found.Role
		role.Exists = true
		if err := role.read(found.Settings, found.Elsewhere); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// read takes over the settings of a role, as name=value, and what depends on it elsewhere, as
// a catalog, an OID, the kind of dependency and a database.
func (r *Role) read(settings, elsewhere []string) error {
	for _, setting := range settings {
		switch name, value, _ := strings.Cut(setting, "="); name {
		case "search_path":
			r.SearchPath = value
		case "statement_timeout":
			r.StatementTimeout = value
		}
	}
	for _, text := range elsewhere {
		var d Dependent
		fields := strings.SplitN(text, " ", 4) // a database may have spaces in its name
		if len(fields) != 4 {
			return fmt.Errorf("dependent %q: must have four fields", text)
		}
		oid, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			return fmt.Errorf("dependent %q: %w", text, err)
		}
		d.Catalog, d.OID, d.Database = strings.TrimPrefix(fields[0], "pg_catalog."), uint32(oid), fields[3]
		d.Owned = fields[2] == "o"
		r.Elsewhere = append(r.Elsewhere, d)
	}
	return nil
}

// reserved returns an error if a schema has, or would have, the name of a role. Such a schema
// is the first place where that role looks for functions, so that the owner of the schema
// would decide what an administrator calls. Names of other applications that were made
// before this was refused are left alone: their roles have a search path.
func (s State) reserved(want Want) error {
	if s.SchemaIsRole {
		if _, ours := external.ParseMark(s.SchemaRole); !ours || !s.Schema.Exists {
			return fmt.Errorf(
				"database: schema %s %w of a role of the server, which would look there first; choose another spec.database.schemaName or name",
				want.Schema,
				external.ErrReserved,
			)
		}
	}
	for _, r := range s.parts(want) {
		if r.role != nil && !r.exists && slices.Contains(s.RoleSchemas, r.name) {
			return fmt.Errorf(
				"database: role %s %w of a schema of the database, where it would look first; choose another spec.database.schemaName or name",
				r.name,
				external.ErrReserved,
			)
		}
	}
	return nil
}

// foreign returns an error that names what exists and is of another, nil if nothing is.
func (s State) foreign(want Want) error {
	for _, part := range s.parts(want) {
		if part.exists && want.Mark.Claim(part.comment) == external.Foreign {
			return external.Owned(part.what, part.comment)
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
