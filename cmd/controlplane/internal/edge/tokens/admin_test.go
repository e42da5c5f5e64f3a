package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// read returns what a file with this content holds.
func read(t *testing.T, content string) (tokens.Admins, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	f := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	return f.Admins, f.Read(t.Context())
}

func TestALineGivesATokenARole(t *testing.T) {
	t.Parallel()
	const p1, p2 = "5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22", "6f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22"
	secrets := make([]string, 5)
	for n := range secrets {
		secrets[n], _ = tokens.New()
	}
	admins, err := read(
		t,
		strings.NewReplacer("<P1>", p1, "<P2>", p2, "<T0>", secrets[0], "<T1>", secrets[1], "<T2>", secrets[2], "<T3>", secrets[3], "<T4>", secrets[4]).
			Replace(`
# people
<T0>
name=alice expires=2027-01-31 <T1>
  name=bob@example.com	role=operator projects=<P1>,<P2> regions=* <T2>
role=reader <T3>

name=alice role=administrator expires=2027-01-31T12:00:00+02:00 <T4>
`),
	)
	require.NoError(t, err)
	all := admins()
	require.Len(t, all, 5)
	for n, want := range []struct {
		name    string
		role    tokens.Role
		expires string
		scope   string
	}{
		{"", tokens.RoleAdministrator, "", "everything"},
		{"alice", tokens.RoleAdministrator, "2027-02-01T00:00:00Z", "everything"},
		{"bob@example.com", tokens.RoleOperator, "", "the projects " + p1 + ", " + p2 + " and every region"},
		{"", tokens.RoleReader, "", "nothing"},
		{"alice", tokens.RoleAdministrator, "2027-01-31T10:00:00Z", "everything"},
	} {
		found, err := admins.Find(secrets[n])
		require.NoError(t, err)
		require.Equal(t, want.name, found.Name)
		require.Equal(t, want.role, found.Role)
		require.Equal(t, want.scope, found.Scope())
		if want.name == "" {
			require.Equal(t, "admin/"+tokens.Fingerprint(secrets[n]), found.Actor())
		} else {
			require.Equal(t, "admin/"+want.name, found.Actor())
		}
		if want.expires != "" {
			require.Equal(t, want.expires, found.Expires.UTC().Format(time.RFC3339))
		}
		var log logtest.Log
		slog.New(slog.NewTextHandler(&log, nil)).
			Info("seen", slog.Any("admin", found), slog.String("text", fmt.Sprintf("%v %+v %s", found, found, found)))
		require.NotContains(t, log.String(), secrets[n])
		require.Contains(t, log.String(), tokens.Fingerprint(secrets[n]))
	}
	_, err = admins.Find("none")
	require.ErrorIs(t, err, tokens.ErrUnknown)
	require.NotEqual(t, all[0].MAC("a"), all[1].MAC("a"))
	require.NotEqual(t, all[0].MAC("a"), all[0].MAC("b"))
}

func TestALineThatIsWrongIsNamedWithoutItsToken(t *testing.T) {
	t.Parallel()
	token, _ := tokens.New()
	for line, want := range map[string]string{
		"two words":                             "line 2 of ",
		"alice " + token:                        "all but the last, the token, must be settings such as role=reader",
		"role=boss " + token:                    `role is "boss", must be reader, operator or administrator`,
		"role= " + token:                        `role is "", must be`,
		"rol=reader " + token:                   `something else than the settings name, role, projects, regions, expires`,
		"role=operator " + token:                "role is operator, which needs projects or regions, such as projects=* for all",
		"projects=* " + token:                   "role is administrator, which has no projects and regions: only an operator has",
		"role=reader regions=eu " + token:       "role is reader, which has no projects and regions",
		"role=operator projects= " + token:      `projects: the id number 1 is none; it must be UUIDs in lower case with commas between, or * for all`,
		"role=operator regions=eu,,us " + token: `regions: the id number 2 is none`,
		"name=Alice " + token:                   `name must be 1 to 63 characters of a-z`,
		"name=0a1b2c3d " + token:                "and not 8 hexadecimal digits",
		"name=a name=b " + token:                "name is there twice",
		"expires=tomorrow " + token:             `expires is "tomorrow", must be a day such as 2027-01-31`,
		"name=" + token + " x=y z":              "name must be",
		"role=" + token + " z":                  "role must be",
		"expires=" + token + " z":               "expires must be",
		"regions=!" + token + " z":              "regions: the id number 1",
		token + "=a z":                          "something else",
		"expires=2027-02-30 " + token:           "expires is",
		"role=operator projects=shop " + token:  "projects: the id number 1 is none; it must be UUIDs in lower case",
		"role=operator projects=5F0C7C1E-2A61-4F0E-9A43-6F7F0F3A1B22 " + token:           "projects: the id number 1",
		"name=carol expires=2027-01-31T12:00:00Z":                                        "it has no token: its last word is the setting expires",
		"name=alice.smith.of.the.platform.team":                                          "it has no token: its last word is the setting name",
		"name=op role=operator regions=eu projects=5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22": "it has no token: its last word is the setting projects",
		"role=reader":              "it has no token",
		"name=a role=reader short": "the token in line 2",
	} {
		_, err := read(t, "\n"+line+"\n")
		require.ErrorContains(t, err, want, line)
		require.ErrorContains(t, err, "line 2", line)
		require.NotContains(t, err.Error(), token, line)
	}
	_, err := read(t, token+"\nrole=reader "+token+"\n")
	require.ErrorContains(t, err, "it has the token of line 1")
	_, err = read(t, "# nobody\n")
	require.ErrorContains(t, err, "has 0 tokens")
}

// TestEveryTokenOfAFileIsChecked has the token of an agent in its last line, and very many.
func TestEveryTokenOfAFileIsChecked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	list := make([]string, 257)
	for n := range list {
		list[n], _ = tokens.New()
	}
	f := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	write := func(n int) error {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(list[:n], "\n")), 0o600))
		return f.Read(t.Context())
	}
	require.ErrorContains(t, write(257), "has 257 tokens, want 1 to 256")
	require.NoError(t, write(256))
	asked := 0
	f.Check = func(_ context.Context, token string) error {
		asked++
		if token == list[255] {
			return errors.New("is that of an agent")
		}
		return nil
	}
	require.ErrorContains(t, f.CheckAll(t.Context()), "is that of an agent")
	require.Equal(t, 256, asked)
	require.NoError(t, write(256), "what was read before is not checked again")
	require.False(t, tokens.Only().Usable())
}

// TestARoleHasItsRights is a matrix of roles, rights and objects.
func TestARoleHasItsRights(t *testing.T) {
	t.Parallel()
	const read, operate, administer = adminapi.RightRead, adminapi.RightOperate, adminapi.RightAdminister
	operator := tokens.Admin{Role: tokens.RoleOperator, Projects: []string{"p1"}, Regions: []string{"eu"}}
	everywhere := tokens.Admin{Role: tokens.RoleOperator, Projects: []string{"*"}}
	for _, test := range []struct {
		admin           tokens.Admin
		right           adminapi.Right
		project, region string
		want            bool
	}{
		{tokens.Admin{Role: tokens.RoleAdministrator}, administer, "", "", true},
		{tokens.Admin{Role: tokens.RoleAdministrator}, operate, "p1", "", true},
		{tokens.Admin{Role: tokens.RoleReader}, read, "", "", true},
		{tokens.Admin{Role: tokens.RoleReader}, operate, "p1", "", false},
		{tokens.Admin{Role: tokens.RoleReader, Projects: []string{"p1"}}, operate, "p1", "", false},
		{tokens.Admin{Role: tokens.RoleReader}, administer, "", "", false},
		{tokens.Admin{}, operate, "p1", "", false},
		{tokens.Admin{}, administer, "", "", false},
		{operator, read, "p2", "", true},
		{operator, operate, "p1", "", true},
		{operator, operate, "p2", "", false},
		{operator, operate, "", "eu", true},
		{operator, operate, "", "us", false},
		{operator, operate, "eu", "", false},
		{operator, operate, "", "p1", false},
		{operator, operate, "", "", false},
		{operator, administer, "p1", "eu", false},
		{everywhere, operate, "p2", "", true},
		{everywhere, operate, "", "eu", false},
		{everywhere, operate, "", "", false},
		{everywhere, administer, "p2", "", false},
	} {
		require.Equal(t, test.want, test.admin.May(test.right, test.project, test.region), "%+v", test)
	}
}

func TestATokenEndsAtItsTime(t *testing.T) {
	t.Parallel()
	token, _ := tokens.New()
	other, _ := tokens.New()
	synctest.Test(t, func(t *testing.T) {
		admins, err := read(t, "name=alice expires="+time.Now().Add(time.Hour).Format(time.RFC3339)+" "+token+"\n"+other+"\n")
		require.NoError(t, err)
		_, err = admins.Find(token)
		require.NoError(t, err)
		time.Sleep(time.Hour - time.Nanosecond)
		_, err = admins.Find(token)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		alice, err := admins.Find(token)
		require.ErrorIs(t, err, tokens.ErrExpired)
		require.Equal(t, "alice", alice.Name)
		_, err = admins.Find(other)
		require.NoError(t, err)
	})
}
