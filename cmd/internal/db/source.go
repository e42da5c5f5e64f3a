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
	path, err := fileOf(source)
	switch {
	case err != nil:
		return nil, err
	case path == "":
		return PostgreSQL{URL: source}.Open(ctx)
	default:
		return SQLite{Path: path}.Open(ctx)
	}
}

// fileOf returns the path that source names, and none for a PostgreSQL.
func fileOf(source string) (path string, err error) {
	scheme, path, isURL := strings.Cut(source, "://")
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"), !isURL && isKeywords(source):
		return "", nil
	case isURL && scheme != "sqlite":
		return "", fmt.Errorf("%w: it begins with %.20q", ErrBadURL, scheme+"://")
	case !isURL:
		path = source
	}
	if path == "" {
		return "", fmt.Errorf("%w: the path is empty", ErrBadURL)
	}
	return path, nil
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
