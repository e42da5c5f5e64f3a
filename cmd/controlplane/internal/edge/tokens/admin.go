package tokens

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// Role is what an administrator may do.
type Role string

// The roles.
const (
	// RoleReader may look at everything, and change nothing.
	RoleReader Role = "reader"
	// RoleOperator may, in addition, change what runs in some projects or regions.
	RoleOperator Role = "operator"
	// RoleAdministrator may do everything.
	RoleAdministrator Role = "administrator"
)

// all is the scope of an operator of all projects or regions.
const all = "*"

// ErrExpired is the token of an administrator after its expiry.
var ErrExpired = errors.New("the token has expired")

// Admin is an administrator: one token, and what it opens.
type Admin struct {
	// Name is a person or a program. Empty: the file has none.
	Name string
	Role Role
	// Projects and Regions are the ids of what an operator may change, or "*".
	Projects, Regions []string
	// Expires is when the token ends; zero for never.
	Expires time.Time

	token string
}

// Actor is the administrator in logs and in the audit.
func (a Admin) Actor() string { return "admin/" + cmp.Or(a.Name, a.Fingerprint()) }

// Fingerprint is the [Fingerprint] of the token.
func (a Admin) Fingerprint() string { return Fingerprint(a.token) }

// LogValue shows all but the token.
func (a Admin) LogValue() slog.Value { return slog.StringValue(a.label()) }

// String is LogValue as text.
func (a Admin) String() string { return a.label() }

func (a Admin) label() string {
	text := a.Fingerprint()
	if a.Name != "" {
		text = a.Name + " " + text
	}
	if a.Role != RoleAdministrator {
		text += " " + string(a.Role)
	}
	return text
}

// MAC returns a code for a text that the holder of the token alone could make, as
// hexadecimal digits.
func (a Admin) MAC(text string) string {
	mac := hmac.New(sha256.New, []byte(a.token))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// Expired reports whether the token has ended.
func (a Admin) Expired(now time.Time) bool { return !a.Expires.IsZero() && !now.Before(a.Expires) }

// May reports whether the administrator has a right to a project or region, of which one is
// empty or both are.
func (a Admin) May(right adminapi.Right, project, region string) bool {
	switch {
	case a.Role == RoleAdministrator, right == adminapi.RightRead:
		return true
	case a.Role != RoleOperator, right != adminapi.RightOperate:
		return false
	}
	return within(a.Projects, project) || within(a.Regions, region)
}

func within(scope []string, id string) bool {
	return id != "" && (slices.Contains(scope, id) || slices.Contains(scope, all))
}

// Scope says in words what the administrator may change.
func (a Admin) Scope() string {
	switch a.Role {
	case RoleReader:
		return "nothing"
	case RoleAdministrator:
		return "everything"
	case RoleOperator:
	}
	var parts []string
	for _, part := range []struct {
		name string
		ids  []string
	}{{"project", a.Projects}, {"region", a.Regions}} {
		switch {
		case len(part.ids) == 0:
		case slices.Contains(part.ids, all):
			parts = append(parts, "every "+part.name)
		default:
			parts = append(parts, "the "+part.name+"s "+strings.Join(part.ids, ", "))
		}
	}
	return strings.Join(parts, " and ")
}

// Admins returns the administrators at this moment, those whose token has expired among
// them.
type Admins func() []Admin

// Only are administrators with tokens that never change.
func Only(tokens ...string) Admins {
	var list []Admin
	for _, token := range tokens {
		list = append(list, Admin{Role: RoleAdministrator, token: token})
	}
	return func() []Admin { return list }
}

// Find returns the administrator with the token, [ErrUnknown] or [ErrExpired]. It takes the
// same time for each.
func (a Admins) Find(token string) (found Admin, err error) {
	err = ErrUnknown
	for _, admin := range a() {
		if Same(token, admin.token) {
			found, err = admin, nil
		}
	}
	if err == nil && found.Expired(time.Now()) {
		err = ErrExpired
	}
	return found, err
}

// Usable reports whether there is a token, and none is too short.
func (a Admins) Usable() bool {
	return a != nil && len(a()) > 0 && !slices.ContainsFunc(a(), func(admin Admin) bool { return len(admin.token) < MinBytes })
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,62}$`)
	fingerprintOf = regexp.MustCompile(`^[0-9a-f]{8}$`)
	regionScope   = regexp.MustCompile(`^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,99})$`)
)

// settings are what can stand before a token. No token begins with one and =.
var settings = []string{"name", "role", "projects", "regions", "expires"} //nolint:gochecknoglobals // a table

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
		if seen[name] {
			return Admin{}, fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if err := admin.set(name, value); err != nil {
			return Admin{}, err
		}
	}
	switch scoped := seen["projects"] || seen["regions"]; {
	case admin.Role == RoleOperator && !scoped:
		return Admin{}, errors.New("role is operator, which needs projects or regions, such as projects=* for all")
	case admin.Role != RoleOperator && scoped:
		return Admin{}, fmt.Errorf("role is %s, which has no projects and regions: only an operator has", admin.Role)
	}
	return admin, nil
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
