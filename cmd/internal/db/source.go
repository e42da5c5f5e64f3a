package db

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Open opens the database that source names: the path of a SQLite file, or
// sqlite://path; or a PostgreSQL, as postgres://user:password@host:port/database or
// in the form of libpq, host=... user=... password=... . An error wraps [ErrBadURL]
// if source is none of them. No error repeats a password.
func Open(ctx context.Context, source string) (*Database, error) {
	scheme, rest, isURL := strings.Cut(source, "://")
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"), !isURL && isKeywords(source):
		return PostgreSQL{URL: source}.Open(ctx)
	case isURL && scheme != "sqlite":
		return nil, fmt.Errorf("%w: it begins with %.20q", ErrBadURL, scheme+"://")
	case !isURL:
		rest = source
	}
	if rest == "" {
		return nil, fmt.Errorf("%w: the path is empty", ErrBadURL)
	}
	return SQLite{Path: rest}.Open(ctx)
}

// isKeywords reports whether source is a connection string of libpq: it begins with
// one of its keywords.
func isKeywords(source string) bool {
	first := firstKeyword.FindStringSubmatch(source)
	return first != nil && slices.Contains(keywords, first[1])
}

var firstKeyword = regexp.MustCompile(`^\s*([a-z_]+)\s*=`)

// keywords are those of libpq that a connection string begins with.
var keywords = []string{ //nolint:gochecknoglobals // a table
	"host", "hostaddr", "port", "dbname", "database", "user", "password", "passfile", "service", "servicefile",
	"connect_timeout", "application_name", "options", "target_session_attrs",
	"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslsni",
}
