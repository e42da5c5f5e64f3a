package application

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/names"
)

// Settings are the services that applications use. They are read from the environment.
type Settings struct {
	// DatabaseURL is that of an administrator of PostgreSQL (DB_ADMIN_URL). Without it,
	// applications have no databases.
	DatabaseURL string
	// KeycloakURL, KeycloakUser and KeycloakPassword reach Keycloak (KEYCLOAK_ADMIN_URL,
	// _USER, _PASSWORD). Without them, applications have no realms.
	KeycloakURL, KeycloakUser, KeycloakPassword string
	// BaseDomain is what hosts are below (BASE_DOMAIN). Default platform.company.dev.
	BaseDomain string
	// S3Endpoint is that of another S3 than that of AWS (AWS_ENDPOINT_URL), S3Region its
	// region (S3_REGION). Default ca-central-1.
	S3Endpoint, S3Region string
	// Redis and OpenSearch are the hosts of managed services (REDIS_ENDPOINT,
	// OPENSEARCH_ENDPOINT).
	Redis, OpenSearch string
}

// SettingsOf reads the settings from an environment, such as os.Getenv. The error names
// each variable that is wrong, what would be right, and no secret.
func SettingsOf(env func(string) string) (Settings, error) {
	s := Settings{
		DatabaseURL: env("DB_ADMIN_URL"),
		KeycloakURL: strings.TrimRight(env("KEYCLOAK_ADMIN_URL"), "/"), KeycloakUser: env("KEYCLOAK_ADMIN_USER"), KeycloakPassword: env("KEYCLOAK_ADMIN_PASSWORD"),
		BaseDomain: cmp.Or(env("BASE_DOMAIN"), "platform.company.dev"),
		S3Endpoint: strings.TrimRight(env("AWS_ENDPOINT_URL"), "/"), S3Region: cmp.Or(env("S3_REGION"), "ca-central-1"),
		Redis: env("REDIS_ENDPOINT"), OpenSearch: env("OPENSEARCH_ENDPOINT"),
	}
	return s, s.check()
}

var (
	domain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)
	region = regexp.MustCompile(`^[a-z0-9-]+$`)
	host   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
)

func (s Settings) check() error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if s.KeycloakURL != "" || s.KeycloakUser != "" || s.KeycloakPassword != "" {
		for name, value := range map[string]string{"KEYCLOAK_ADMIN_URL": s.KeycloakURL, "KEYCLOAK_ADMIN_USER": s.KeycloakUser, "KEYCLOAK_ADMIN_PASSWORD": s.KeycloakPassword} {
			if value == "" {
				add("%s: is required with the other variables KEYCLOAK_ADMIN_...", name)
			}
		}
	}
	for name, value := range map[string]string{"KEYCLOAK_ADMIN_URL": s.KeycloakURL, "AWS_ENDPOINT_URL": s.S3Endpoint} {
		if at, err := url.Parse(value); value != "" && (err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil) {
			add("%s: must be a URL such as https://service.example.com", name)
		}
	}
	if !domain.MatchString(s.BaseDomain) || len(s.BaseDomain) > names.Base {
		add("BASE_DOMAIN: is %q, must be a domain such as platform.example.com, of at most %d characters", s.BaseDomain, names.Base)
	}
	if !region.MatchString(s.S3Region) {
		add("S3_REGION: is %q, must be a region such as ca-central-1", s.S3Region)
	}
	for name, value := range map[string]string{"REDIS_ENDPOINT": s.Redis, "OPENSEARCH_ENDPOINT": s.OpenSearch} {
		if value != "" && !host.MatchString(value) {
			add("%s: is %q, must be a host name without a scheme and a port", name, value)
		}
	}
	return errors.Join(wrong...)
}
