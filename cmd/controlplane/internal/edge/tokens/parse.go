package tokens

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,62}$`)
	fingerprintOf = regexp.MustCompile(`^[0-9a-f]{8}$`)
	regionScope   = regexp.MustCompile(`^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,99})$`)
)

// settings are what can stand before a token. No token begins with one and =.
var settings = []string{"name", "role", "projects", "regions", "expires"} //nolint:gochecknoglobals // a table

// groupSettings are what can stand before the name of a group.
var groupSettings = []string{"role", "projects", "regions"} //nolint:gochecknoglobals // a table

// parse reads one line of a file: settings and last the token. An error never shows the
// token.
func parse(line string) (Admin, error) {
	words := strings.Fields(line)
	if name, _, _ := strings.Cut(words[len(words)-1], "="); slices.Contains(settings, name) {
		return Admin{}, fmt.Errorf("it has no token: its last word is the setting %s", name)
	}
	admin := Admin{Role: RoleAdministrator, token: words[len(words)-1]}
	seen := map[string]bool{}
	for _, word := range words[:len(words)-1] {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return Admin{}, errors.New("it has spaces: of several words all but the last, the token, must be settings such as role=reader")
		}
		if err := admin.setOnce(seen, name, value); err != nil {
			return Admin{}, err
		}
	}
	return admin, admin.scoped(seen)
}

// setOnce sets what was not set before.
func (a *Admin) setOnce(seen map[string]bool, name, value string) error {
	if seen[name] {
		return fmt.Errorf("%s is there twice", name)
	}
	seen[name] = true
	return a.set(name, value)
}

// scoped returns why the role and the settings of its scope do not fit each other.
func (a *Admin) scoped(seen map[string]bool) error {
	switch scoped := seen["projects"] || seen["regions"]; {
	case a.Role == RoleOperator && !scoped:
		return errors.New("role is operator, which needs projects or regions, such as projects=* for all")
	case a.Role != RoleOperator && scoped:
		return fmt.Errorf("role is %s, which has no projects and regions: only an operator has", a.Role)
	}
	return nil
}

// parseGroup reads one line of a file of groups: settings, of which role is one, and last the
// name of the group, which may have spaces.
func parseGroup(line string) (Group, error) {
	rights, seen := Admin{}, map[string]bool{}
	rest := line
	for {
		word, after := rest, ""
		if end := strings.IndexAny(rest, " \t"); end >= 0 {
			word, after = rest[:end], rest[end:]
		}
		name, value, isSetting := strings.Cut(word, "=")
		if !isSetting || !slices.Contains(settings, name) { // such as CN=admins,OU=shop
			break
		}
		if !slices.Contains(groupSettings, name) {
			return Group{}, fmt.Errorf("it has the setting %s: before the name of a group only %s can stand",
				name, strings.Join(groupSettings, ", "))
		}
		if err := rights.setOnce(seen, name, value); err != nil {
			return Group{}, err
		}
		if rest = strings.TrimSpace(after); rest == "" {
			return Group{}, fmt.Errorf("it has no group: its last word is the setting %s", name)
		}
	}
	if !seen["role"] {
		return Group{}, errors.New("it has no role, which must stand before the group, such as role=reader")
	}
	return Group{Name: rest, rights: rights}, rights.scoped(seen)
}

// shown returns a value that is too short to be a token.
func shown(value string) string {
	if len(value) < MinBytes {
		return fmt.Sprintf(" is %q,", value)
	}
	return ""
}

func (a *Admin) set(name, value string) error {
	switch name {
	case "name":
		if !namePattern.MatchString(value) || fingerprintOf.MatchString(value) {
			return errors.New("name must be 1 to 63 characters of a-z, 0-9, ., _, @ and -, and not 8 hexadecimal digits")
		}
		a.Name = value
	case "role":
		a.Role = Role(value)
		if !slices.Contains([]Role{RoleReader, RoleOperator, RoleAdministrator}, a.Role) {
			return fmt.Errorf("role%s must be reader, operator or administrator", shown(value))
		}
	case "projects", "regions":
		ids := strings.Split(value, ",")
		valid, must := regionScope.MatchString, "ids"
		if name == "projects" {
			valid, must = func(id string) bool { return id == all || starbase.ValidUUID(id) }, "UUIDs in lower case"
			a.Projects = ids
		} else {
			a.Regions = ids
		}
		for n, id := range ids {
			if !valid(id) {
				return fmt.Errorf("%s: the id number %d is none; it must be %s with commas between, or * for all", name, n+1, must)
			}
		}
	case "expires":
		if day, err := time.Parse(time.DateOnly, value); err == nil {
			a.Expires = day.AddDate(0, 0, 1)
			return nil
		}
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return fmt.Errorf("expires%s must be a day such as 2027-01-31, the last in UTC, or a time such as 2027-01-31T12:00:00Z", shown(value))
		}
		a.Expires = at
	default:
		return errors.New("it has something else than the settings name, role, projects, regions, expires")
	}
	return nil
}
