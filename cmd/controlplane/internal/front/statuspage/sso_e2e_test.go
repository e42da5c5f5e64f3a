//go:build unix

package statuspage_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth/issuertest"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// TestABrowserComesBackFromTheIssuerLoggedIn runs e2e/sso.test.js against the real program. The
// issuer is localhost, which is another site than 127.0.0.1.
//
//nolint:paralleltest // a browser that waits for a processor shows nothing for a minute
func TestABrowserComesBackFromTheIssuerLoggedIn(t *testing.T) {
	needBrowser(t)
	issuer := issuertest.Start(t)
	issuer.SetPerson("1", "alice", "staff")
	issuer.SetAsks()
	port, err := process.Port(t.Context())
	require.NoError(t, err)
	groups := filepath.Join(t.TempDir(), "groups")
	require.NoError(t, os.WriteFile(groups, []byte("role=reader staff\n"), 0o600))
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	program(t, "--listen", "127.0.0.1:"+strconv.Itoa(port), "--oidc-issuer", issuer.URL, "--oidc-client-id", issuertest.ClientID,
		"--oidc-groups-file", groups, "--external-url", url)
	browse(t, "sso.test.js", "STATUS_URL="+url, "STATUS_ISSUER="+issuer.URL)
}
