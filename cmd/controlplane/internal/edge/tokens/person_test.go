package tokens_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

func groupFile(t *testing.T, text string) (*tokens.GroupFile, error) {
	t.Helper()
	f := &tokens.GroupFile{Path: filepath.Join(t.TempDir(), "groups"), Logger: slog.New(slog.DiscardHandler)}
	require.NoError(t, os.WriteFile(f.Path, []byte(text), 0o600))
	return f, f.Read(t.Context())
}

func TestAPersonHasTheSumOfTheRightsOfGroups(t *testing.T) {
	t.Parallel()
	const p1, p2 = "5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22", "6f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22"
	f, err := groupFile(t, `
# people
role=reader everybody
	role=operator projects=`+p1+` regions=eu,us   Shop developers
role=operator	projects=`+p2+` regions=us,ap	/shop/on call
role=operator projects=* every project
role=administrator admins
role=reader CN=On Call,OU=shop
`)
	require.NoError(t, err)
	for _, test := range []struct {
		groups            []string
		role              tokens.Role
		projects, regions []string
	}{
		{[]string{"CN=On Call,OU=shop"}, tokens.RoleReader, nil, nil},
		{[]string{"everybody", "unknown"}, tokens.RoleReader, nil, nil},
		{[]string{"Shop developers", "everybody"}, tokens.RoleOperator, []string{p1}, []string{"eu", "us"}},
		{[]string{"/shop/on call", "Shop developers"}, tokens.RoleOperator, []string{p1, p2}, []string{"ap", "eu", "us"}},
		{[]string{"every project", "Shop developers"}, tokens.RoleOperator, []string{"*"}, []string{"eu", "us"}},
		{[]string{"Shop developers", "admins", "everybody"}, tokens.RoleAdministrator, nil, nil},
	} {
		admin, ok := f.Admin(tokens.Person{Issuer: "i", Subject: "s", Groups: test.groups}, "alice")
		require.True(t, ok)
		require.Equal(t, test.role, admin.Role, test.groups)
		require.Equal(t, test.projects, admin.Projects, test.groups)
		require.Equal(t, test.regions, admin.Regions, test.groups)
		require.Equal(t, "oidc/alice", admin.Actor())
		require.Len(t, admin.Fingerprint(), 8)
	}
	keys := map[string]bool{}
	for _, person := range []tokens.Person{{Issuer: "i", Subject: "s"}, {Issuer: "j", Subject: "s"}, {Issuer: "i", Subject: "t"}} {
		keys[person.Key()] = true
	}
	require.Len(t, keys, 3, "two issuers may give one subject")
	for _, groups := range [][]string{nil, {""}, {"Admins"}, {"shop"}, {"role=reader everybody"}} {
		_, ok := f.Admin(tokens.Person{Subject: "s", Groups: groups}, "alice")
		require.False(t, ok, groups)
	}
}

func TestALineOfAGroupThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"admins":                          "it has no role, which must stand before the group, such as role=reader",
		"rol=reader admins":               "it has no role, which must stand before the group",
		"name=a role=reader admins":       "it has the setting name: before the name of a group only role, projects, regions can stand",
		"expires=2027-01-31 admins":       "it has the setting expires",
		"role=boss admins":                `role is "boss", must be reader, operator or administrator`,
		"role=reader":                     "it has no group: its last word is the setting role",
		"role=operator projects=*":        "it has no group: its last word is the setting projects",
		"role=operator developers":        "role is operator, which needs projects or regions",
		"role=reader regions=eu everyone": "role is reader, which has no projects and regions",
		"role=reader role=reader all":     "role is there twice",
		"role=operator projects=shop all": "projects: the id number 1 is none",
	} {
		_, err := groupFile(t, "\n"+line+"\n")
		require.ErrorContains(t, err, want, line)
		require.ErrorContains(t, err, "line 2 of ", line)
	}
	_, err := groupFile(t, "\uFEFFrole=reader all\r\n")
	require.NoError(t, err, "as Windows writes it")
	_, err = groupFile(t, "role=reader all\nrole=administrator all\n")
	require.ErrorContains(t, err, "it has the group of line 1")
	_, err = groupFile(t, "# none\n")
	require.ErrorContains(t, err, "has 0 groups, want 1 to 1000, one a line")
}

func TestGroupsAreReadAgainAndTheLastGoodOnesKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := groupFile(t, "role=reader all\n")
		require.NoError(t, err)
		var log logtest.Log
		f.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Start(ctx) }()
		role := func() tokens.Role {
			admin, _ := f.Admin(tokens.Person{Subject: "s", Groups: []string{"all"}}, "alice")
			return admin.Role
		}
		write := func(text string) {
			require.NoError(t, os.WriteFile(f.Path, []byte(text), 0o600))
			settle(3 * time.Second)
		}
		write("role=administrator all\n")
		require.Equal(t, tokens.RoleAdministrator, role())
		require.Contains(t, log.String(), "groups of administrators reloaded")
		write("administrators\n")
		require.Equal(t, tokens.RoleAdministrator, role(), "it cannot be used")
		require.Contains(t, log.String(), "groups of administrators not reloaded")
		write("role=reader others\n")
		require.Empty(t, role())
		cancel()
		require.NoError(t, <-done)
	})
}
