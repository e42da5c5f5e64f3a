package operator

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Settings are the services that applications use. They are read from the environment.
type Settings struct {
	// DatabaseURL is the URL of an administrator of PostgreSQL (DB_ADMIN_URL). Without it,
	// applications have no databases.
	DatabaseURL string
	// DatabaseConnections is how many connections the role of one application may have
	// (DB_CONNECTION_LIMIT). Zero: 50. DatabaseTimeout is how long a statement of an
	// application may take that sets no other limit (DB_STATEMENT_TIMEOUT). Zero: 5 minutes.
	DatabaseConnections int
	DatabaseTimeout     time.Duration
	// KeycloakURL, KeycloakUser and KeycloakPassword reach Keycloak (KEYCLOAK_ADMIN_URL,
	// _USER, _PASSWORD). Without them, applications have no realms.
	KeycloakURL, KeycloakUser, KeycloakPassword string
	// BaseDomain is what hosts are below (BASE_DOMAIN). Default platform.company.dev.
	BaseDomain string
	// AllowedDomains are the domains that spec.domain of an application may be below, beside
	// the base domain (ALLOWED_DOMAINS, separated by commas), * any. ReservedHosts belong to
	// no application, beside the hosts of the platform itself (RESERVED_HOSTS).
	AllowedDomains, ReservedHosts []string
	// GatewayNamespaces are the namespaces of the ingress controllers, whose pods may connect to
	// the pods of applications (GATEWAY_NAMESPACES, separated by commas). Empty: ingress-nginx.
	GatewayNamespaces []string
	// S3Endpoint is the endpoint of an S3 other than AWS's (AWS_ENDPOINT_URL), S3Region its
	// region (S3_REGION). Default ca-central-1.
	S3Endpoint, S3Region string
	// Redis and OpenSearch are the hosts of managed services (REDIS_ENDPOINT,
	// OPENSEARCH_ENDPOINT).
	Redis, OpenSearch string
}

// defaultRegion is the default of S3_REGION.
const defaultRegion = "ca-central-1"

// SettingsOf reads the settings from an environment, such as os.Getenv. The error names
// each variable that is wrong, what would be right, and no secret.
func SettingsOf(env func(string) string) (Settings, error) {
	s := Settings{
		DatabaseURL: env("DB_ADMIN_URL"),
		KeycloakURL: strings.TrimRight(
			env("KEYCLOAK_ADMIN_URL"),
			"/",
		),
		KeycloakUser:     env("KEYCLOAK_ADMIN_USER"),
		KeycloakPassword: env("KEYCLOAK_ADMIN_PASSWORD"),
		BaseDomain:       cmp.Or(env("BASE_DOMAIN"), "platform.company.dev"),
		S3Endpoint:       strings.TrimRight(env("AWS_ENDPOINT_URL"), "/"),
		S3Region:         cmp.Or(env("S3_REGION"), defaultRegion),
		Redis:            env("REDIS_ENDPOINT"),
		OpenSearch:       env("OPENSEARCH_ENDPOINT"),
	}
	s.AllowedDomains, s.ReservedHosts, s.GatewayNamespaces = list(
		env("ALLOWED_DOMAINS"),
	), list(
		env("RESERVED_HOSTS"),
	), list(
		env("GATEWAY_NAMESPACES"),
	)
	var wrong []error
	if err := database.CheckURL(s.DatabaseURL); s.DatabaseURL != "" && err != nil {
		wrong = append(wrong, err)
	}
	if text := env("DB_CONNECTION_LIMIT"); text != "" {
		n, err := strconv.Atoi(text)
		if s.DatabaseConnections = n; err != nil || n < 1 {
			wrong = append(wrong, fmt.Errorf("DB_CONNECTION_LIMIT: is %q, must be a number such as 50, at least 1", text))
		}
	}
	if text := env("DB_STATEMENT_TIMEOUT"); text != "" {
		d, err := time.ParseDuration(text)
		if s.DatabaseTimeout = d; err != nil || d < time.Millisecond {
			wrong = append(wrong, fmt.Errorf("DB_STATEMENT_TIMEOUT: is %q, must be a duration such as 5m, at least 1ms", text))
		}
	}
	return s, errors.Join(append(wrong, s.check())...)
}

// gateways are the namespaces of the ingress controllers.
func (s Settings) gateways() []string {
	if len(s.GatewayNamespaces) == 0 {
		return []string{"ingress-nginx"}
	}
	return s.GatewayNamespaces
}

// list reads names that are separated by commas, nil if there is none.
func list(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

var (
	domain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)
	label  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	region = regexp.MustCompile(`^[a-z0-9-]+$`)
	host   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
)

func (s Settings) check() error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if s.KeycloakURL != "" || s.KeycloakUser != "" || s.KeycloakPassword != "" {
		for name, value := range map[string]string{"KEYCLOAK_ADMIN_URL": s.KeycloakURL, "KEYCLOAK_ADMIN_USER": s.KeycloakUser, "KEYCLOAK_ADMIN_PASSWORD": s.KeycloakPassword} {
			if value == "" {
				add("%s: is not set, must be set with the other variables KEYCLOAK_ADMIN_...", name)
			}
		}
	}
	for name, value := range map[string]string{"KEYCLOAK_ADMIN_URL": s.KeycloakURL, "AWS_ENDPOINT_URL": s.S3Endpoint} {
		if at, err := url.Parse(value); value != "" &&
			(err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil) {
			add("%s: is %q, must be a URL such as https://service.example.com", name, program.Shown(value))
		}
	}
	if !domain.MatchString(s.BaseDomain) || len(s.BaseDomain) > names.Base {
		add("BASE_DOMAIN: is %q, must be a domain such as platform.example.com, of at most %d characters", s.BaseDomain, names.Base)
	}
	for name, hosts := range map[string][]string{"ALLOWED_DOMAINS": s.AllowedDomains, "RESERVED_HOSTS": s.ReservedHosts} {
		for _, value := range hosts {
			if !domain.MatchString(value) && (name != "ALLOWED_DOMAINS" || value != anyDomain) {
				add("%s: has %q, must have host names in lower case such as example.com, separated by commas", name, value)
			}
		}
	}
	for _, value := range s.GatewayNamespaces {
		if !label.MatchString(value) {
			add("GATEWAY_NAMESPACES: has %q, must have names of namespaces such as ingress-nginx, separated by commas", value)
		}
	}
	if !region.MatchString(s.S3Region) {
		add("S3_REGION: is %q, must be a region such as ca-central-1", s.S3Region)
	}
	for name, value := range map[string]string{"REDIS_ENDPOINT": s.Redis, "OPENSEARCH_ENDPOINT": s.OpenSearch} {
		if value != "" && !host.MatchString(value) {
			add("%s: is %q, must be a host name without a scheme and a port", name, program.Shown(value))
		}
	}
	return errors.Join(wrong...)
}
