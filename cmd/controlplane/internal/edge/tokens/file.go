package tokens

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Admins returns the tokens that are valid for administrators at this moment.
type Admins func() []string

// Only is one token that never changes.
func Only(token string) Admins { return func() []string { return []string{token} } }

// Valid reports whether the token is one of them. It takes the same time for each.
func (a Admins) Valid(token string) bool {
	valid := false
	for _, known := range a() {
		valid = Same(token, known) || valid
	}
	return valid
}

// Usable reports whether there is a token, and none is too short.
func (a Admins) Usable() bool {
	return a != nil && len(a()) > 0 && !slices.ContainsFunc(a(), func(token string) bool { return len(token) < MinBytes })
}

// maxAdmins bounds the tokens of a file.
const maxAdmins = 16

// reread is the time between two looks at a file.
const reread = 2 * time.Second

// File is a file with the tokens of administrators, one a line. All of them are valid: to
// replace one, the new one is added, and the old one is removed when nothing uses it any
// more. The file is read again while the program runs. Read it before use.
type File struct {
	// Path of the file. Required.
	Path string
	// Check says why a new token cannot be one of administrators, beside that it is weak.
	// Nil: it can.
	Check func(ctx context.Context, token string) error
	// Logger receives changes, and why a changed file is not used. Required for Start.
	Logger *slog.Logger

	current atomic.Pointer[[]string]
}

// Tokens returns the tokens of the last file that could be used.
func (f *File) Tokens() []string {
	if current := f.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Fingerprints returns the fingerprints of [File.Tokens].
func (f *File) Fingerprints() []string { return fingerprints(f.Tokens()) }

// Read reads the file now. After an error the tokens do not change. An error names the file
// and the line, and never shows a token.
func (f *File) Read(ctx context.Context) error {
	content, err := os.ReadFile(f.Path)
	if err != nil {
		return err
	}
	var found []string
	known := f.Tokens()
	for n, line := range strings.Split(string(content), "\n") {
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if slices.Contains(known, token) {
			found = append(found, token)
			continue
		}
		if err := Weak(token); err != nil {
			return fmt.Errorf("the token in line %d of %s is weak: %w", n+1, f.Path, err)
		}
		if f.Check != nil {
			if err := f.Check(ctx, token); err != nil {
				return fmt.Errorf("line %d of %s: %w", n+1, f.Path, err)
			}
		}
		found = append(found, token)
	}
	if len(found) == 0 || len(found) > maxAdmins {
		return fmt.Errorf("%s has %d tokens, want 1 to %d, one a line", f.Path, len(found), maxAdmins)
	}
	f.current.Store(&found)
	return nil
}

// Start reads the file again and again until ctx ends, and then returns nil.
func (f *File) Start(ctx context.Context) error {
	said := ""
	loop := reconcile.Loop{
		Name:     "tokens of administrators",
		Interval: reread,
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
			said = f.again(ctx, said)
			return reconcile.Result{}, nil
		}),
	}
	return loop.Start(ctx)
}

// again reads the file once more, and returns why it could not be used, which is logged once.
func (f *File) again(ctx context.Context, said string) string {
	before := f.Tokens()
	err := f.Read(ctx)
	switch {
	case ctx.Err() != nil:
		return said
	case err != nil:
		if err.Error() != said {
			f.Logger.ErrorContext(ctx, "admin tokens not reloaded", slog.Any("error", err))
		}
		return err.Error()
	}
	if now := f.Tokens(); !slices.Equal(before, now) {
		f.Logger.InfoContext(ctx, "admin tokens reloaded", slog.Any("before", fingerprints(before)), slog.Any("now", fingerprints(now)))
	}
	return ""
}

// fingerprints returns the fingerprints of the tokens.
func fingerprints(tokens []string) []string {
	list := make([]string, len(tokens))
	for n, token := range tokens {
		list[n] = Fingerprint(token)
	}
	return list
}
