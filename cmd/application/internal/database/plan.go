package database

//trueup:pure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// Statement is one statement of a plan.
type Statement struct {
	// What names what it does, without anything secret.
	What string
	// SQL is the statement. Of a password it has what the server keeps of it.
	SQL string
}

// anonRead follows the mark in the comment of the role of anonymous readers while it may
// read. Without it, tables that exist get the right when it may again.
const anonRead = "anon-read"

// tablePrivileges are those that the app's role has on what the administrator makes.
func tablePrivileges() []string { return []string{"SELECT", "INSERT", "UPDATE", "DELETE"} }

// planner collects statements.
type planner struct {
	state      State
	want       Want
	statements []Statement
}

func (p *planner) add(what, format string, args ...any) {
	p.statements = append(p.statements, Statement{what, fmt.Sprintf(format, args...)})
}

// Plan returns the statements that turn a state into the desired one, in order: none if they
// are equal. The error wraps [external.ErrOwnedByOther] if anything belongs to another,
// [external.ErrReserved] if a name belongs to something else of the server, and
// [external.ErrDenied] if the administrator lacks a right that the plan needs.
func Plan(state State, want Want) ([]Statement, error) {
	if err := errors.Join(state.foreign(want), state.reserved(want)); err != nil {
		return nil, err
	}
	p := &planner{state: state, want: want}
	p.make()
	p.roles()
	p.rights()
	p.defaults()
	p.reading()
	if len(p.statements) == 0 || state.Superuser {
		return p.statements, nil
	}
	if !state.CreateRole {
		return nil, fmt.Errorf(
			"database: %w: the role of DB_ADMIN_URL has no CREATEROLE; an administrator of the server grants it with ALTER ROLE ... CREATEROLE",
			external.ErrDenied,
		)
	}
	if !state.CreateSchema && !state.Schema.Exists {
		return nil, fmt.Errorf(
			"database: %w: the role of DB_ADMIN_URL may not create schemas; the owner of the database grants it with GRANT CREATE ON DATABASE",
			external.ErrDenied,
		)
	}
	return p.statements, nil
}

// make creates missing objects, and adopts retained ones.
func (p *planner) make() {
	s, w := p.state, p.want
	if !s.Schema.Exists {
		p.add("create schema "+w.Schema, "CREATE SCHEMA %s", identifier(w.Schema))
	}
	if !s.App.Exists {
		p.add("create role "+w.App, "CREATE ROLE %s LOGIN PASSWORD %s", identifier(w.App), literal(w.verifier))
	}
	if !s.Anon.Exists {
		p.add("create role "+w.Anon, "CREATE ROLE %s NOLOGIN", identifier(w.Anon))
	}
	for _, part := range s.parts(w) {
		mark := w.Mark.String()
		if part.name == w.Anon && w.AnonRead {
			mark += " " + anonRead
		}
		if part.comment != mark {
			p.add("mark "+part.what, "COMMENT ON %s %s IS %s", part.kind, identifier(part.name), literal(mark))
		}
	}
}

// roles makes the roles log in, or not, and members of each other.
func (p *planner) roles() {
	s, w := p.state, p.want
	switch {
	case !s.App.Exists: // it was made with both
	case s.PasswordDiffers, !s.App.Login:
		p.add("set the password of role "+w.App, "ALTER ROLE %s LOGIN PASSWORD %s", identifier(w.App), literal(w.verifier))
	}
	if s.Anon.Login {
		p.add("forbid role "+w.Anon+" to log in", "ALTER ROLE %s NOLOGIN", identifier(w.Anon))
	}
	if !s.AnonInApp {
		p.add("grant role "+w.Anon+" to "+w.App, "GRANT %s TO %s", identifier(w.Anon), identifier(w.App))
	}
	p.join(s.App, w.App)
	if !s.App.Exists || s.App.Connections != w.connections {
		p.add("limit the connections of role "+w.App, "ALTER ROLE %s CONNECTION LIMIT %d", identifier(w.App), w.connections)
	}
	if timeout := fmt.Sprintf("%dms", w.statementTimeout.Milliseconds()); s.App.StatementTimeout != timeout {
		p.add("limit the statements of role "+w.App, "ALTER ROLE %s SET statement_timeout = %s", identifier(w.App), literal(timeout))
	}
	if s.App.SearchPath != w.Schema && s.App.SearchPath != identifier(w.Schema) {
		p.add("set the search path of role "+w.App, "ALTER ROLE %s SET search_path = %s", identifier(w.App), identifier(w.Schema))
	}
}

// join gives the administrator the rights of a role, without which it may not change
// what the role owns.
func (p *planner) join(role Role, name string) {
	if !role.Admin && !p.state.Superuser {
		p.grant(name)
	}
}

func (p *planner) grant(name string) {
	how := ""
	if p.state.Version >= 160000 {
		how = " WITH INHERIT TRUE, SET TRUE"
	}
	p.add("grant role "+name+" to the administrator", "GRANT %s TO CURRENT_USER%s", identifier(name), how)
}

// rights are those on the schema itself.
func (p *planner) rights() {
	s, w := p.state, p.want
	if !s.App.Usage || !s.App.Create {
		p.add("grant schema "+w.Schema+" to "+w.App, "GRANT ALL ON SCHEMA %s TO %s", identifier(w.Schema), identifier(w.App))
	}
	if !s.Anon.Usage {
		p.add("grant the use of schema "+w.Schema+" to "+w.Anon, "GRANT USAGE ON SCHEMA %s TO %s", identifier(w.Schema), identifier(w.Anon))
	}
	if s.Anon.Create {
		p.add("revoke schema "+w.Schema+" from "+w.Anon, "REVOKE CREATE ON SCHEMA %s FROM %s", identifier(w.Schema), identifier(w.Anon))
	}
}

// defaults gives and takes default privileges: those for what the administrator makes to
// both roles, those for what the app's role makes to anonymous readers.
func (p *planner) defaults() {
	s, w := p.state, p.want
	var wanted []Default
	for _, privilege := range tablePrivileges() {
		wanted = append(wanted, Default{s.Admin, w.App, privilege})
	}
	if w.AnonRead {
		wanted = append(wanted, Default{s.Admin, w.Anon, "SELECT"}, Default{w.App, w.Anon, "SELECT"})
	}
	p.change("grant", "GRANT", "TO", without(wanted, s.Defaults))
	p.change("revoke", "REVOKE", "FROM", without(s.Defaults, wanted))
}

// change alters default privileges, with one statement for each pair of roles.
func (p *planner) change(what, verb, preposition string, defaults []Default) {
	type pair struct{ by, to string }
	var pairs []pair
	privileges := map[pair][]string{}
	for _, d := range defaults {
		at := pair{d.By, d.To}
		if privileges[at] == nil {
			pairs = append(pairs, at)
		}
		privileges[at] = append(privileges[at], d.Privilege)
	}
	for _, at := range pairs {
		p.add(
			fmt.Sprintf("%s default privileges for tables of %s: %s", what, at.by, at.to),
			"ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA %s %s %s ON TABLES %s %s",
			identifier(at.by),
			identifier(p.want.Schema),
			verb,
			strings.Join(privileges[at], ", "),
			preposition,
			identifier(at.to),
		)
	}
}

func without(all, some []Default) []Default {
	return slices.DeleteFunc(slices.Clone(all), func(d Default) bool { return slices.Contains(some, d) })
}

// reading is about tables that exist. The app may have taken the right on a table from
// anonymous readers, so that it is given only when reading has been off.
func (p *planner) reading() {
	s, w := p.state, p.want
	was := strings.HasSuffix(s.Anon.Comment, " "+anonRead)
	if w.AnonRead && s.Schema.Exists && s.Anon.Exists && !was {
		p.add("grant all tables to "+w.Anon, "GRANT SELECT ON ALL TABLES IN SCHEMA %s TO %s", identifier(w.Schema), identifier(w.Anon))
	}
	if !w.AnonRead && s.AnonTables > 0 {
		p.add("revoke all tables from "+w.Anon, "REVOKE SELECT ON ALL TABLES IN SCHEMA %s FROM %s", identifier(w.Schema), identifier(w.Anon))
	}
}

// PlanClose returns the statements after which no role of the mark logs in any more.
func PlanClose(state State, want Want) ([]Statement, error) {
	p := &planner{state: state, want: want}
	p.close()
	return p.statements, nil
}

// Held returns what keeps the roles of the mark from being dropped: what they have in other
// databases of the server. Nil: nothing does.
func Held(state State, want Want) error { return (&planner{state: state, want: want}).held() }

// PlanDelete returns the statements that remove the objects of the mark, or with retain leave
// them for the next object of its name. Objects of another mark are left as they are. A role
// that something in another database depends on stays, but owns nothing in this one.
func PlanDelete(state State, want Want, retain bool) ([]Statement, error) {
	p := &planner{state: state, want: want}
	if retain {
		p.retain()
		return p.statements, nil
	}
	schema := p.ours(state.Schema.Exists, state.Schema.Comment)
	// What others have made in the schema and let the roles use would hold these.
	if schema && state.Foreign > 0 {
		p.dropSchema()
	}
	for _, r := range []struct {
		role Role
		name string
	}{{state.App, want.App}, {state.Anon, want.Anon}} {
		if p.ours(r.role.Exists, r.role.Comment) && !r.role.waits(state) {
			p.drop(r.role, r.name)
		}
	}
	if schema && state.Foreign == 0 {
		p.dropSchema()
	}
	return p.statements, nil
}

func (p *planner) dropSchema() {
	p.add("drop schema "+p.want.Schema, "DROP SCHEMA IF EXISTS %s CASCADE", identifier(p.want.Schema))
}

// ours reports whether something exists and is of the very object. What another object of
// the name has left is not: it waits for the next.
func (p *planner) ours(exists bool, comment string) bool {
	found, ok := external.ParseMark(comment)
	return exists && ok && p.want.Mark.Claim(comment) != external.Foreign && found.UID == p.want.Mark.UID
}

// drop removes a role with what depends on it.
func (p *planner) drop(role Role, name string) {
	s, w := p.state, p.want
	quoted, schema := identifier(name), identifier(w.Schema)
	if !s.Superuser {
		p.grant(name) // it may have the role's rights by way of one that was just dropped
	}
	if s.Schema.Exists && s.Foreign == 0 {
		p.add("revoke all tables from "+name, "REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM %s", schema, quoted)
		for _, by := range p.givers(name) {
			p.add(
				fmt.Sprintf("revoke default privileges for tables of %s: %s", by, name),
				"ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA %s REVOKE ALL ON TABLES FROM %s",
				identifier(by),
				schema,
				quoted,
			)
		}
	}
	// No object is given to another role: functions, views and the expressions of indexes
	// run with the rights of their owner, and would get the rights of the new one.
	p.add("drop what role "+name+" owns", "DROP OWNED BY %s", quoted)
	if len(role.Elsewhere) == 0 {
		p.add("drop role "+name, "DROP ROLE IF EXISTS %s", quoted)
	}
}

// close ends the use of the database by roles that are about to go, so that none holds what
// is dropped.
func (p *planner) close() {
	for _, part := range p.state.parts(p.want) {
		if part.role != nil && part.role.Login && p.ours(part.exists, part.comment) {
			p.add("forbid "+part.what+" to log in", "ALTER ROLE %s NOLOGIN", identifier(part.name))
		}
	}
}

// waits reports whether all is done about a role but to drop it: the schema went with what
// the role owned.
func (r Role) waits(state State) bool {
	return len(r.Elsewhere) > 0 && !r.Login && !state.Schema.Exists
}

// held returns an error that names what keeps a role from being dropped, nil if nothing
// does: other databases are not the operator's.
func (p *planner) held() error {
	var failed []error
	for _, part := range p.state.parts(p.want) {
		if part.role == nil || !p.ours(part.exists, part.comment) || len(part.role.Elsewhere) == 0 {
			continue
		}
		const most = 5
		var named []string
		for _, d := range part.role.Elsewhere[:min(len(part.role.Elsewhere), most)] {
			named = append(named, d.String())
		}
		if more := len(part.role.Elsewhere) - most; more > 0 {
			named = append(named, fmt.Sprintf("%d more", more))
		}
		failed = append(
			failed,
			fmt.Errorf("database: role %s cannot be dropped, which cannot log in any more: it has %s; run DROP OWNED BY %s in database %s",
				part.name, strings.Join(named, ", "), identifier(part.name), identifier(part.role.Elsewhere[0].Database)),
		)
	}
	return errors.Join(failed...)
}

// givers returns the roles that gave a role default privileges and still exist when it is
// dropped: the app's role is dropped before the role of anonymous readers.
func (p *planner) givers(name string) (by []string) {
	for _, d := range p.state.Defaults {
		gone := name == p.want.Anon && d.By == p.want.App && p.ours(p.state.App.Exists, p.state.App.Comment)
		if d.To == name && !gone && !slices.Contains(by, d.By) {
			by = append(by, d.By)
		}
	}
	return by
}

// retain marks everything as left, and lets the app's role log in no more.
func (p *planner) retain() {
	for _, part := range p.state.parts(p.want) {
		if !p.ours(part.exists, part.comment) {
			continue
		}
		mark := p.want.Mark
		mark.Retained = true
		text := mark.String()
		if strings.HasSuffix(part.comment, " "+anonRead) {
			text += " " + anonRead
		}
		if part.role != nil && part.role.Login {
			p.add("forbid "+part.what+" to log in", "ALTER ROLE %s NOLOGIN", identifier(part.name))
		}
		if part.comment != text {
			p.add("leave "+part.what, "COMMENT ON %s %s IS %s", part.kind, identifier(part.name), literal(text))
		}
	}
}
