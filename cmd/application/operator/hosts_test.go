package operator //nolint:testpackage // hosts are not exported

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestHostileHosts is about hosts that no Application may have, or none but below a domain
// that the platform allows.
func TestHostileHosts(t *testing.T) {
	t.Parallel()
	s := Settings{
		BaseDomain: "example.com", KeycloakURL: "https://login.example.org:8443", S3Endpoint: "http://s3.example.org", Redis: "redis.example.org",
		AllowedDomains: []string{"example.org"}, ReservedHosts: []string{"grafana.example.com"},
	}
	for _, c := range []struct{ host, domain, refused string }{
		{"shop.example.com", "", ""},
		{"shop.staging.example.com", "", ""},
		{"auth.example.com", "", "reserved"},
		{"auth.example.com", "auth.example.com", "reserved"},
		{"a.auth.example.com", "a.auth.example.com", "reserved"},
		{"auth.example.org", "auth.example.org", "reserved"},
		{"login.example.org", "login.example.org", "reserved"},
		{"s3.example.org", "s3.example.org", "reserved"},
		{"redis.example.org", "redis.example.org", "reserved"},
		{"grafana.example.com", "", "reserved"},
		{"example.com", "example.com", "reserved"},
		{"staging.example.com", "", "reserved"},
		{"uat.example.com", "", "reserved"},
		{"preview.example.com", "", "reserved"},
		{"pr-1.shop.preview.example.com", "pr-1.shop.preview.example.com", "hosts below preview.example.com are those of previews"},
		{"www.example.com", "www.example.com", ""},
		{"shop.example.org", "shop.example.org", ""},
		{"example.org", "example.org", ""},
		{"evil.attacker.example", "evil.attacker.example", "must be below example.com or example.org"},
		{"notexample.org", "notexample.org", "must be below"},
		{"example.org.attacker.example", "example.org.attacker.example", "must be below"},
	} {
		t.Run(c.host+" by "+c.domain, func(t *testing.T) {
			t.Parallel()
			err := s.allows(c.host, c.domain)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errHostNotAllowed)
			require.ErrorContains(t, err, c.refused)
			require.ErrorContains(t, err, c.host)
			require.True(t, strings.HasPrefix(err.Error(), "spec.domain: ") || c.domain == "" && strings.HasPrefix(err.Error(), "metadata.name: "))
			require.Equal(t, reasonHostAllowed, hostReason(err))
		})
	}
	anywhere := Settings{BaseDomain: "example.com", AllowedDomains: []string{anyDomain}}
	require.NoError(t, anywhere.allows("evil.attacker.example", "evil.attacker.example"))
	require.Error(t, anywhere.allows("auth.example.com", "auth.example.com"))
	require.Error(t, Settings{BaseDomain: "example.com"}.allows("shop.example.org", "shop.example.org"))
}

// TestHostileClaims is about a host that several want.
func TestHostileClaims(t *testing.T) {
	t.Parallel()
	at := func(namespace string, age time.Duration, held string) claimant {
		return claimant{
			types.NamespacedName{Namespace: namespace, Name: "shop"},
			types.UID(namespace),
			metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
			held,
		}
	}
	const host = "shop.example.com"
	for name, c := range map[string]struct {
		first, second claimant // in the order of their passes
		winner        string
	}{
		"the first":                        {at("team", 0, ""), at("evil", 0, ""), "evil"}, // of the same second: by name, and never both
		"the older":                        {at("evil", time.Hour, ""), at("team", 2*time.Hour, ""), "team"},
		"the older, asked first":           {at("team", 2*time.Hour, ""), at("evil", time.Hour, ""), "team"},
		"what has it, of a younger":        {at("evil", 2*time.Hour, ""), at("team", time.Hour, host), "team"},
		"what has it, asked first":         {at("team", time.Hour, host), at("evil", 2*time.Hour, ""), "team"},
		"what has another, of an older":    {at("evil", 2*time.Hour, "other.example.com"), at("team", time.Hour, host), "team"},
		"both are recorded, by a forger":   {at("evil", time.Hour, host), at("team", 2*time.Hour, host), "team"},
		"both want it, one has another":    {at("evil", time.Hour, "other.example.com"), at("team", 2*time.Hour, ""), "team"},
		"an older that comes later by far": {at("team", time.Hour, host), at("evil", 9*time.Hour, "evil.example.com"), "team"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h hosts
			for range 3 {
				winners := []string{}
				if h.claim(host, c.first, []claimant{c.second}) {
					winners = append(winners, c.first.key.Namespace)
				}
				if h.claim(host, c.second, []claimant{c.first}) {
					winners = append(winners, c.second.key.Namespace)
				}
				require.Equal(t, []string{c.winner}, winners)
			}
		})
	}
	t.Run("until it is let go", func(t *testing.T) {
		t.Parallel()
		var h hosts
		team, evil := at("team", time.Hour, ""), at("evil", 2*time.Hour, "")
		require.True(t, h.claim(host, team, nil))
		require.False(t, h.claim(host, evil, nil), "team wants another by now, and its Ingress is still there")
		require.True(t, h.claim("new.example.com", team, nil))
		require.Equal(t, []string{host}, h.keep(team.key, "new.example.com"))
		require.True(t, h.claim(host, evil, nil))
		require.False(t, h.claim(host, team, []claimant{evil}))
		again := evil
		again.uid = "made again under its name"
		require.True(t, h.claim(host, again, nil))
		require.Equal(t, []string{host}, h.keep(evil.key, ""))
		require.Empty(t, h.keep(evil.key, ""))
	})
}
