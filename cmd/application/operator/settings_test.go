package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	application "github.com/seed-9e1ffd66/trueup/cmd/application/operator"
)

func TestSettingsComeFromTheEnvironmentAndErrorsNameTheVariable(t *testing.T) {
	t.Parallel()
	of := func(pairs ...string) (application.Settings, error) {
		return application.SettingsOf(func(name string) string {
			for _, pair := range pairs {
				if value, ok := strings.CutPrefix(pair, name+"="); ok {
					return value
				}
			}
			return ""
		})
	}
	s, err := of()
	require.NoError(t, err)
	require.Equal(t, application.Settings{BaseDomain: "platform.company.dev", S3Region: "ca-central-1"}, s)
	s, err = of(
		"DB_ADMIN_URL=postgresql://a:b@c/d",
		"KEYCLOAK_ADMIN_URL=https://auth.example.com/",
		"KEYCLOAK_ADMIN_USER=u",
		"KEYCLOAK_ADMIN_PASSWORD=p",
		"BASE_DOMAIN=example.com",
		"AWS_ENDPOINT_URL=http://127.0.0.1:9000",
		"S3_REGION=eu-west-1",
		"REDIS_ENDPOINT=redis.internal",
		"OPENSEARCH_ENDPOINT=search.internal",
	)
	require.NoError(t, err)
	require.Equal(t, application.Settings{
		DatabaseURL:      "postgresql://a:b@c/d",
		KeycloakURL:      "https://auth.example.com",
		KeycloakUser:     "u",
		KeycloakPassword: "p",
		BaseDomain:       "example.com",
		S3Endpoint:       "http://127.0.0.1:9000",
		S3Region:         "eu-west-1",
		Redis:            "redis.internal",
		OpenSearch:       "search.internal",
	}, s)
	s, err = of(
		"ALLOWED_DOMAINS=example.org, example.net",
		"RESERVED_HOSTS=www.example.org",
		"GATEWAY_NAMESPACES=gateway,monitoring",
		"DB_CONNECTION_LIMIT=20",
		"DB_STATEMENT_TIMEOUT=90s",
	)
	require.NoError(t, err)
	require.Equal(t, application.Settings{
		BaseDomain:          "platform.company.dev",
		S3Region:            "ca-central-1",
		AllowedDomains:      []string{"example.org", "example.net"},
		ReservedHosts:       []string{"www.example.org"},
		GatewayNamespaces:   []string{"gateway", "monitoring"},
		DatabaseConnections: 20,
		DatabaseTimeout:     90 * time.Second,
	}, s)
	for pair, message := range map[string]string{
		"KEYCLOAK_ADMIN_URL=https://a":                     "KEYCLOAK_ADMIN_USER: is not set",
		"KEYCLOAK_ADMIN_PASSWORD=sesame":                   "KEYCLOAK_ADMIN_URL: is not set",
		"AWS_ENDPOINT_URL=127.0.0.1:9000":                  "AWS_ENDPOINT_URL: is \"127.0.0.1:9000\", must be a URL",
		"AWS_ENDPOINT_URL=http://a:b@host":                 "AWS_ENDPOINT_URL: is \"(hidden)\", must be a URL",
		"BASE_DOMAIN=localhost":                            "BASE_DOMAIN: is \"localhost\", must be a domain",
		"BASE_DOMAIN=" + strings.Repeat("a.", 100) + "com": "BASE_DOMAIN",
		"S3_REGION=a b":                                    "S3_REGION",
		"REDIS_ENDPOINT=redis://a":                         "REDIS_ENDPOINT: is \"redis://a\", must be a host name",
		"OPENSEARCH_ENDPOINT=host:443":                     "OPENSEARCH_ENDPOINT",
		"ALLOWED_DOMAINS=example.org,*.example.net":        `ALLOWED_DOMAINS: has "*.example.net", must have host names`,
		"RESERVED_HOSTS=*":                                 `RESERVED_HOSTS: has "*", must have host names`,
		"GATEWAY_NAMESPACES=Ingress":                       `GATEWAY_NAMESPACES: has "Ingress", must have names of namespaces`,
		"DB_CONNECTION_LIMIT=-1":                           `DB_CONNECTION_LIMIT: is "-1", must be a number`,
		"DB_CONNECTION_LIMIT=many":                         `DB_CONNECTION_LIMIT: is "many"`,
		"DB_STATEMENT_TIMEOUT=5":                           `DB_STATEMENT_TIMEOUT: is "5", must be a duration such as 5m`,
	} {
		_, err := of(pair)
		require.ErrorContains(t, err, message)
		require.NotContains(t, err.Error(), "sesame")
	}
}

func TestSizesAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1048576": 1 << 20, "10MB": 10e6, "512Ki": 512 << 10, "512KiB": 512 << 10, "1k": 1000, "3TiB": 3 << 40, "7B": 7,
		"": 0, "B": 0, "MB": 0, "1X": 0, "-1": 0, "1.5M": 0, "99999999999T": 0,
	} {
		require.Equal(t, want, application.BytesOf(text), text)
	}
}
