package database_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
)

// TestHostileURLs is about what an app gets of DB_ADMIN_URL: how the server is reached, and
// nothing that is the administrator's.
func TestHostileURLs(t *testing.T) {
	t.Parallel()
	const admin = "postgresql://operator:adm1n@db.internal:6432/platform"
	for name, c := range map[string]struct{ url, app, postgrest string }{
		"plain":       {admin, "db.internal:6432/platform?search_path=prod_shop", "db.internal:6432/platform"},
		"encrypted":   {admin + "?sslmode=require", "db.internal:6432/platform?search_path=prod_shop&sslmode=require", "db.internal:6432/platform?sslmode=require"},
		"of libpq":    {admin + "?connect_timeout=3&sslmode=prefer", "db.internal:6432/platform?connect_timeout=3&search_path=prod_shop&sslmode=prefer", "db.internal:6432/platform?connect_timeout=3&sslmode=prefer"},
		"of a driver": {admin + "?timezone=UTC", "db.internal:6432/platform?search_path=prod_shop&timezone=UTC", "db.internal:6432/platform"},
		"several hosts": {
			"postgresql://operator:adm1n@a.internal:1,b.internal:2/platform?target_session_attrs=read-write",
			"a.internal:1,b.internal:2/platform?search_path=prod_shop&target_session_attrs=read-write", "a.internal:1,b.internal:2/platform?target_session_attrs=read-write",
		},
		"no credentials": {
			"postgresql://db.internal:6432/platform?user=operator&password=adm1n&sslmode=disable", "db.internal:6432/platform?search_path=prod_shop&sslmode=disable", "db.internal:6432/platform?sslmode=disable",
		},
		"nothing of the operator": {
			admin + "?pool_max_conns=4&application_name=plattr&search_path=operator&sslmode=disable", "db.internal:6432/platform?search_path=prod_shop&sslmode=disable", "db.internal:6432/platform?sslmode=disable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := database.Open(t.Context(), database.Options{URL: c.url})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			w := want("shop")
			login := "postgresql://" + url.UserPassword(w.App, w.Password).String() + "@"
			require.Equal(t, login+c.app, s.URL(w))
			require.Equal(t, login+c.postgrest, s.PostgRESTURL(w))
			require.NotContains(t, s.URL(w), "operator")
			require.NotContains(t, s.URL(w), "adm1n")
		})
	}
	_, err := database.Open(t.Context(), database.Options{URL: "host=db.internal user=operator password=adm1n dbname=platform"})
	require.ErrorContains(t, err, `DB_ADMIN_URL: is "(hidden)", must be a URL`)
	require.NotContains(t, err.Error(), "adm1n")
}
