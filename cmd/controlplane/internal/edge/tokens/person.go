package tokens

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
)

// maxGroups bounds the groups of a file.
const maxGroups = 1000

// Person is someone whom an issuer of OpenID Connect has identified. The name that goes with a
// person may be given to another one some day; the issuer never gives the subject twice.
type Person struct {
	// Issuer and Subject are the claims iss and sub.
	Issuer, Subject string
	// Groups are those that the issuer has named.
	Groups []string
}

// Known reports whether this is a person.
func (p Person) Known() bool { return p.Subject != "" }

// Key is what only this person has: a hash of the issuer and the subject.
func (p Person) Key() string { return Hash("trueup person " + p.Issuer + "\n" + p.Subject) }

// Group is what the members of one group may do.
type Group struct {
	// Name is the group's at the issuer.
	Name string

	rights Admin
}

// label is what logs show of a group.
func (g Group) label() string {
	return fmt.Sprintf("%q %s %s", g.Name, g.rights.Role, g.rights.Scope())
}

// GroupFile is a file with the roles of groups, one group a line:
//
//	role=operator projects=5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22 regions=eu,us developers
//
// The settings are those of a [File], and role must be there; the rest of the line is the
// name. Empty lines, and lines that begin with #, are left out. The file is read again while
// the program runs. Read it before use. It is safe for concurrent use.
type GroupFile struct {
	// Path of the file. Required.
	Path string
	// Logger receives changes, and why a changed file is not used. Required for Start.
	Logger *slog.Logger

	current atomic.Pointer[[]Group]
}

// Read reads the file now. After an error the groups do not change. An error names the file and
// the line.
func (f *GroupFile) Read(context.Context) error {
	var found []Group
	lines := map[string]int{}
	err := eachLine(f.Path, func(n int, line string) error {
		group, err := parseGroup(line)
		if err != nil {
			return fmt.Errorf("line %d of %s: %w", n, f.Path, err)
		}
		if first, twice := lines[group.Name]; twice {
			return fmt.Errorf("line %d of %s: it has the group of line %d", n, f.Path, first)
		}
		lines[group.Name] = n
		found = append(found, group)
		return nil
	})
	if err != nil {
		return err
	}
	if len(found) == 0 || len(found) > maxGroups {
		return fmt.Errorf("%s has %d groups, want 1 to %d, one a line", f.Path, len(found), maxGroups)
	}
	f.current.Store(&found)
	return nil
}

// Start reads the file again and again until ctx ends, and then returns nil.
func (f *GroupFile) Start(ctx context.Context) error {
	return follow(ctx, "groups of administrators", f.Logger, f.Read, f.Groups, func(groups []Group) []string {
		list := make([]string, len(groups))
		for n, group := range groups {
			list[n] = group.label()
		}
		return list
	})
}

// Groups returns the groups of the last file that could be used.
func (f *GroupFile) Groups() []Group {
	if current := f.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Admin returns the administrator that a person is now: with the highest role of the person's
// groups, and of an operator's groups all projects and regions. It has no end by itself. ok is
// false if none of the groups is in the file.
func (f *GroupFile) Admin(person Person, name string) (admin Admin, ok bool) {
	admin = Admin{Name: name, Person: person}
	for _, group := range f.Groups() {
		if !slices.Contains(person.Groups, group.Name) {
			continue
		}
		if rank(group.rights.Role) > rank(admin.Role) {
			admin.Role = group.rights.Role
		}
		admin.Projects = union(admin.Projects, group.rights.Projects)
		admin.Regions = union(admin.Regions, group.rights.Regions)
	}
	if admin.Role != RoleOperator {
		admin.Projects, admin.Regions = nil, nil
	}
	return admin, admin.Role != ""
}

// rank orders the roles, from none to all rights.
func rank(role Role) int {
	return slices.Index([]Role{RoleReader, RoleOperator, RoleAdministrator}, role)
}

// union returns the ids of both scopes, * alone if one has it.
func union(a, b []string) []string {
	both := slices.Concat(a, b)
	if slices.Contains(both, all) {
		return []string{all}
	}
	slices.Sort(both)
	return slices.Compact(both)
}
