package operator_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOperation runs operators whose settings are wrong, one after the other.
func TestOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	c := newWholeCell(t)
	for name, scenario := range map[string]func(*bench){"accounts": wrongAccounts, "twice": keycloakFailsTwice} {
		t.Run(name, func(t *testing.T) { scenario(c.bench(t, "o-"+name)) })
	}
}

// wrongAccounts is the bad input of operation: a condition names the variable or the right
// that is wrong, and what to do, and shows no secret; the status names what may be half
// made. With the right account everything is made, and removed.
func wrongAccounts(b *bench) {
	require.NoError(b, b.pg.SQL(b.Context(), "platform", "CREATE ROLE weak LOGIN PASSWORD 'adm1n'; GRANT CREATE ON DATABASE platform TO weak"))
	require.Equal(b, http.StatusCreated, b.keycloak(http.MethodPost, "/master/users", map[string]any{
		"username": "expired", "enabled": true, "credentials": []any{map[string]any{"type": "password", "value": "0nce-0nly", "temporary": true}},
	}, nil))
	before := b.snapshot()
	names := []string{"weak", "wrong", "expired", "denied"}
	for _, name := range names {
		c := *b.cell
		condition, cure, external := "DatabaseReady", []string{
			"DB_ADMIN_URL",
		}, []string{
			"prod_" + name,
			"prod_" + name + "_app",
			"prod_" + name + "_anon",
		}
		switch name {
		case "weak":
			c.settings.DatabaseURL = strings.Replace(c.settings.DatabaseURL, "operator:", "weak:", 1)
			cure = []string{"DB_ADMIN_URL", "ALTER ROLE ... CREATEROLE"}
		case "wrong":
			c.settings.DatabaseURL = strings.Replace(c.settings.DatabaseURL, "adm1n", "sesame", 1)
			cure = []string{"correct the user or the password of DB_ADMIN_URL"}
		case "expired":
			c.settings.KeycloakUser, c.settings.KeycloakPassword = "expired", "0nce-0nly"
			condition, external = "AuthReady", []string{"expired"}
			cure = []string{"not fully set up", "correct KEYCLOAK_ADMIN_USER or KEYCLOAK_ADMIN_PASSWORD"}
		case "denied":
			c.s3Secret = "sesame"
			condition, external = "StorageReady", []string{"plattr-prod-denied-a", "plattr-prod-denied-b"}
			cure = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
		}
		r := c.start(b.T)
		b.app(name, all)
		b.eventually(name+" is refused", func() bool { return b.condition(name, condition, "reason") == "Denied" })
		b.phase(name, "Failed")
		message := b.condition(name, condition, "message")
		b.Log(message)
		for _, text := range cure {
			require.Contains(b, message, text)
		}
		recorded := strings.Fields(b.get("app", name, ".status.external[*].id"))
		require.Subset(b, recorded, external)
		r.stop()
		for _, secret := range []string{"sesame", "0nce-0nly", "adm1n"} {
			require.NotContains(b, b.in("get", "app,events.events.k8s.io", "-o", "yaml"), secret)
		}
	}
	r := b.start(b.T)
	defer r.stop()
	for _, name := range names {
		b.phase(name, "Running")
		b.in("delete", "app", name, "--timeout=120s")
	}
	b.untouched(before, none, b.name)
	fmt.Println("figure application_foreign_touched 0")
}
