package tokens

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

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
	// Person is who has signed in with OpenID Connect. The zero value: the administrator has a
	// token of the file.
	Person Person

	token string
}

// Actor is the administrator in logs and in the audit: admin/NAME, or oidc/NAME for one who has
// signed in with OpenID Connect.
func (a Admin) Actor() string {
	if a.Person.Known() {
		return "oidc/" + a.Name
	}
	return "admin/" + cmp.Or(a.Name, a.Fingerprint())
}

// Fingerprint is the [Fingerprint] of the token, or of the person.
func (a Admin) Fingerprint() string {
	if a.Person.Known() {
		return a.Person.Key()[:fingerprintSize]
	}
	return Fingerprint(a.token)
}

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
