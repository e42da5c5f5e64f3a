package database

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var grammar = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// errName is a name that no statement may hold.
var errName = errors.New("must be a-z, 0-9 and _, begin with a letter, have at most 63 characters and not begin with pg_")

// checkName returns an error unless a name may stand in a statement. What names makes
// always may.
func checkName(name string) error {
	if !grammar.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("name %q: %w", name, errName)
	}
	return nil
}

// identifier quotes a name.
func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal quotes a text.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// check returns an error for what no statement may hold.
func (w Want) check() error {
	for _, name := range []string{w.Schema, w.App, w.Anon} {
		if err := checkName(name); err != nil {
			return fmt.Errorf("database: %w", err)
		}
	}
	if w.Schema == w.App || w.Schema == w.Anon || w.App == w.Anon {
		return fmt.Errorf("database: schema %s and roles %s and %s: must be three names", w.Schema, w.App, w.Anon)
	}
	if strings.ContainsAny(w.Mark.String(), "\x00\n") || w.Mark.UID == "" || w.Mark.Cluster == "" {
		return errors.New("database: mark: must have a cluster and a UID, and be one line")
	}
	return nil
}
