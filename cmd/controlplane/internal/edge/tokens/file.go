package tokens

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
)

// maxAdmins bounds the tokens of a file.
const maxAdmins = 256

// File is a file with the tokens of administrators, one a line. All of them are valid: to
// replace one, the new one is added, and the old one is removed when nothing uses it any
// more. The file is read again while the program runs. Read it before use.
//
// A line is a token, which opens everything, or settings and then a token:
//
//	name=alice role=operator projects=5f0c7c1e-2a61-4f0e-9a43-6f7f0f3a1b22 regions=eu,us expires=2027-01-31 TOKEN
//
// Empty lines, and lines that begin with #, are left out.
type File struct {
	// Path of the file. Required.
	Path string
	// Check says why a new token cannot be one of administrators, beside that it is weak.
	// Nil: it can.
	Check func(ctx context.Context, token string) error
	// Logger receives changes, and why a changed file is not used. Required for Start.
	Logger *slog.Logger

	current atomic.Pointer[[]Admin]
}

// Admins returns the administrators of the last file that could be used.
func (f *File) Admins() []Admin {
	if current := f.current.Load(); current != nil {
		return *current
	}
	return nil
}

// CheckAll runs Check on the tokens that were read before it was set, and returns the first
// error.
func (f *File) CheckAll(ctx context.Context) error {
	for _, admin := range f.Admins() {
		if err := f.Check(ctx, admin.token); err != nil {
			return err
		}
	}
	return nil
}

// Read reads the file now. After an error the tokens do not change. An error names the file
// and the line, and never shows a token.
func (f *File) Read(ctx context.Context) error {
	var found []Admin
	lines := map[string]int{}
	err := eachLine(f.Path, func(n int, line string) error {
		admin, err := parse(line)
		if err != nil {
			return fmt.Errorf("line %d of %s: %w", n, f.Path, err)
		}
		if first, twice := lines[admin.token]; twice {
			return fmt.Errorf("line %d of %s: it has the token of line %d", n, f.Path, first)
		}
		lines[admin.token] = n
		found = append(found, admin)
		return f.check(ctx, admin.token, n)
	})
	if err != nil {
		return err
	}
	if len(found) == 0 || len(found) > maxAdmins {
		return fmt.Errorf("%s has %d tokens, want 1 to %d, one a line", f.Path, len(found), maxAdmins)
	}
	f.current.Store(&found)
	return nil
}

// check returns why a token that was not read before cannot be used.
func (f *File) check(ctx context.Context, token string, line int) error {
	if slices.ContainsFunc(f.Admins(), func(a Admin) bool { return a.token == token }) {
		return nil
	}
	if err := Weak(token); err != nil {
		return fmt.Errorf("the token in line %d of %s is weak: %w", line, f.Path, err)
	}
	if f.Check != nil {
		if err := f.Check(ctx, token); err != nil {
			return fmt.Errorf("line %d of %s: %w", line, f.Path, err)
		}
	}
	return nil
}

// Start reads the file again and again until ctx ends, and then returns nil.
func (f *File) Start(ctx context.Context) error {
	return follow(ctx, "admin tokens", f.Logger, f.Read, f.Admins, Labels)
}

// Labels returns what logs show of the administrators.
func Labels(admins []Admin) []string {
	list := make([]string, len(admins))
	for n, admin := range admins {
		list[n] = admin.label()
	}
	return list
}
