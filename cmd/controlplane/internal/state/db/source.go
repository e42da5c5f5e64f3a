package db

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Open opens the database that source names: the path of a SQLite file, or
// sqlite://path; or a PostgreSQL, as postgres://user:password@host:port/database or
// in the form of libpq, host=... user=... password=... . An error wraps [ErrBadURL]
// if source is none of them. No error repeats a password.
//
// A path with a character that a connection string has, one of : @ = ?, is written with
// sqlite:// before it: a slip in a connection string never becomes the name of a file. So also
// then a path is refused that begins with an authority (: or @ before the first /), or has
// parameters (= after one of ? & ;) or a password (: and @ in one of its parts).
//
// Of a PostgreSQL, a host, user or database with one of @ : / ? & ; = is refused before
// anything is sent: it is a part of a password that was not escaped.
func Open(ctx context.Context, source string) (*Database, error) {
	return open(ctx, source, false)
}

// OpenExisting is [Open] for a database that a control plane has made before. The error
// wraps [ErrEmpty] if there is none, and nothing is created.
func OpenExisting(ctx context.Context, source string) (*Database, error) {
	return open(ctx, source, true)
}

func open(ctx context.Context, source string, existing bool) (*Database, error) {
	path, err := fileOf(source)
	switch {
	case err != nil:
		return nil, err
	case path == "":
		return PostgreSQL{URL: source, existing: existing}.Open(ctx)
	default:
		return SQLite{Path: path, existing: existing}.Open(ctx)
	}
}

// keyword is what a connection string of libpq begins with. The driver parses it.
var keyword = regexp.MustCompile(`^\s*\w+\s*=`)

// fileOf returns the path that source names, and none for a PostgreSQL.
func fileOf(source string) (path string, err error) {
	path, isFile := strings.CutPrefix(source, "sqlite://")
	switch {
	case strings.HasPrefix(source, "postgres://"), strings.HasPrefix(source, "postgresql://"), !isFile && keyword.MatchString(source):
		return "", nil
	case !isFile && strings.ContainsAny(source, ":@=?"):
		return "", fmt.Errorf("%w; a path with one of : @ = ? needs sqlite:// before it", ErrBadURL)
	case isFile && (authority.MatchString(path) || parameters.MatchString(path)):
		return "", fmt.Errorf(
			"%w; sqlite:// takes a path alone, no user, password or parameters: a file whose name has : @ before the first /, : and @, or = after one of ? & ;, needs another name",
			ErrBadURL,
		)
	case path == "":
		return "", fmt.Errorf("%w: the path is empty", ErrBadURL)
	}
	return path, nil
}

var (
	// authority is a user, password, host or port in the place of a path.
	authority = regexp.MustCompile(`^[^/]*[:@]|:[^/]*@`)
	// parameters matches the parameters of a URL after a path.
	parameters = regexp.MustCompile(`[?&;#].*=`)

	hostPattern = regexp.MustCompile(`^([A-Za-z0-9_.-]+|/[A-Za-z0-9_./ +~-]*)$`) // a name, or the folder of a socket
	namePattern = regexp.MustCompile(`^[^@:/?#&;=\x00-\x1f\x7f]*$`)
	keyPattern  = regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`)
)

// checkPostgreSQL returns an error if a part that is shown, looked up or sent in the clear may
// have some of a password that was not escaped. The error names the part and does not show it.
func checkPostgreSQL(config *pgconn.Config) error {
	hosts := []string{config.Host}
	for _, f := range config.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if _, err := netip.ParseAddr(host); err != nil && !hostPattern.MatchString(host) {
			return wrongPart("host")
		}
	}
	switch {
	case !namePattern.MatchString(config.User):
		return wrongPart("user")
	case !namePattern.MatchString(config.Database):
		return wrongPart("database")
	}
	for key := range config.RuntimeParams {
		// The driver sends to the server what it does not know, such as PASSWORD.
		if !keyPattern.MatchString(key) {
			return wrongPart("name of a parameter")
		}
	}
	return nil
}

func wrongPart(part string) error {
	return fmt.Errorf(
		"%w; its %s has a character that none can have, which happens when a password is not escaped: write @ as %%40, : as %%3A, / as %%2F, ? as %%3F, # as %%23, & as %%26 in the password of a URL, or put '...' around it in a connection string",
		ErrBadURL,
		part,
	)
}
