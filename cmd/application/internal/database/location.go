package database

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// location is where apps find the database: DB_ADMIN_URL without the parts that belong to the
// administrator.
type location struct {
	host     string // the first one
	port     int
	database string
	hosts    string     // all of them with ports, as a URL has them
	query    url.Values // of a URL
}

// locate reads DB_ADMIN_URL, which was parsed already.
func locate(text string, config *pgconn.Config) (location, error) {
	at := location{host: config.Host, port: int(config.Port), database: config.Database, query: url.Values{}}
	at.hosts = net.JoinHostPort(at.host, strconv.Itoa(at.port))
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return at, errors.New(wrongURL + ", not a list of settings")
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	authority = authority[strings.LastIndex(authority, "@")+1:]
	// Several hosts are one authority, which no parser of URLs takes: it is kept as it is.
	if strings.Contains(authority, ",") {
		at.hosts = authority
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return at, errors.New(wrongURL + ": the part after ? cannot be parsed")
	}
	for name, value := range values {
		if !strings.HasPrefix(name, "pool_") && !slices.Contains(ofAdministrator(), name) {
			at.query[name] = value
		}
	}
	return at, nil
}

// ofAdministrator are the parameters of DB_ADMIN_URL that an app must not have, because they
// are credentials or name the role that logs in, or that do not apply to it: parameters of the
// operator's driver, and parameters that the URL of an app sets itself.
func ofAdministrator() []string {
	return []string{
		"user", "password", "passfile", "service", "servicefile", "sslcert", "sslkey", "sslpassword", "krbsrvname", "krbspn", "requirepeer",
		"host", "hostaddr", "port", "dbname", "database", "application_name", "fallback_application_name", "search_path", "replication",
		"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity", "min_read_buffer_size",
	}
}

// ofLibpq are the parameters that libpq takes in a URL, which refuses any other.
func ofLibpq() []string {
	return []string{
		"sslmode",
		"sslnegotiation",
		"sslcompression",
		"sslrootcert",
		"sslcrl",
		"sslcrldir",
		"sslsni",
		"ssl_min_protocol_version",
		"ssl_max_protocol_version",
		"channel_binding",
		"require_auth",
		"connect_timeout",
		"client_encoding",
		"options",
		"keepalives",
		"keepalives_idle",
		"keepalives_interval",
		"keepalives_count",
		"tcp_user_timeout",
		"gssencmode",
		"gsslib",
		"gssdelegation",
		"target_session_attrs",
		"load_balance_hosts",
	}
}

// url returns how a role connects, with these parameters.
func (l location) url(user, password string, query url.Values) string {
	at := url.URL{
		Scheme:   "postgresql",
		User:     url.UserPassword(user, password),
		Host:     l.hosts,
		Path:     "/" + l.database,
		RawQuery: query.Encode(),
	}
	return at.String()
}

// Address returns where apps find the database.
func (s *Server) Address() (host string, port int, database string) {
	return s.at.host, s.at.port, s.at.database
}

// URL returns how the app's role connects, with the schema as its search path and the
// parameters of DB_ADMIN_URL that are not the administrator's own, such as sslmode. It
// holds the password.
func (s *Server) URL(want Want) string {
	query := url.Values{"search_path": {want.Schema}}
	maps.Copy(query, s.at.query)
	return s.at.url(want.App, want.Password, query)
}

// PostgRESTURL is URL with the parameters alone that libpq takes: it refuses search_path.
func (s *Server) PostgRESTURL(want Want) string {
	query := url.Values{}
	for name, values := range s.at.query {
		if slices.Contains(ofLibpq(), name) {
			query[name] = values
		}
	}
	return s.at.url(want.App, want.Password, query)
}
