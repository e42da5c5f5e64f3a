package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// git runs git in a folder and returns what it prints, without the last line break.
func git(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// publishable returns an error that says why this version cannot be made of this checkout.
func (r *release) publishable(ctx context.Context, modules []*part) error {
	if major := semver.Major(r.version); semver.Canonical(r.version) != r.version || major != "v0" && major != "v1" {
		return fmt.Errorf("--version: is %q, must be like v0.1.0 or v1.2.0-rc.1: a major above 1 needs other module paths", r.version)
	}
	changed, err := git(ctx, r.root, nil, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the checkout differs from its commit: commit or remove\n%s", changed)
	}
	tags, err := git(ctx, r.root, nil, "tag", "--list")
	if err != nil {
		return err
	}
	existing := strings.Fields(tags)
	for _, m := range modules {
		if slices.Contains(existing, m.tag(r.version)) {
			return fmt.Errorf("--version: is %s, but the tag %s exists: a tag never moves, choose the next version", r.version, m.tag(r.version))
		}
	}
	last := ""
	for _, tag := range existing {
		if semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	if last != "" && semver.Compare(r.version, last) < 0 {
		return fmt.Errorf("--version: is %s, must be above the last tag %s", r.version, last)
	}
	if semver.Prerelease(r.version) != "" {
		return nil // it may say that no version is published
	}
	return r.pagesAreOfARelease()
}

// unpublished finds the rows of docs/releasing.md with the words of a file that say that there is no
// version, and quoted the words of a row.
var (
	unpublished = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*\"[^|]*) \\|")
	quoted      = regexp.MustCompile(`"([^"]+)"`)
)

// pagesAreOfARelease returns an error that names the pages to change before the first
// release: they become part of its modules, and stay there.
func (r *release) pagesAreOfARelease() error {
	const table = "docs/releasing.md"
	text, err := os.ReadFile(filepath.Join(r.root, table))
	if err != nil {
		return err
	}
	rows := unpublished.FindAllSubmatch(text, -1)
	if len(rows) == 0 {
		return fmt.Errorf("%s: has no table of the files that say that there is no version", table)
	}
	var failed error
	for _, row := range rows {
		page := string(row[1])
		text, err := os.ReadFile(filepath.Join(r.root, page))
		if err != nil {
			return err
		}
		for _, words := range quoted.FindAllSubmatch(row[2], -1) {
			if at := broken(string(words[1])).FindIndex(text); at != nil {
				line := 1 + strings.Count(string(text[:at[0]]), "\n")
				failed = errors.Join(failed, fmt.Errorf("%s:%d: says %q: %s has the text of a release", page, line, words[1], table))
			}
		}
	}
	return failed
}

// broken finds words that may be on several lines, of a comment, too.
func broken(words string) *regexp.Regexp {
	var quoted []string
	for word := range strings.FieldsSeq(words) {
		quoted = append(quoted, regexp.QuoteMeta(word))
	}
	return regexp.MustCompile(strings.Join(quoted, `(?:\s|//)+`))
}

// clone makes a clone of the commit that is checked out. It shares the objects.
func (r *release) clone(ctx context.Context, into string) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	_, err = git(ctx, ".", nil, "clone", "--quiet", "--shared", "--no-tags", root, into)
	return err
}

// tag makes the tags in the checkout. The commit, which is on no branch, comes from the
// clone.
func (r *release) tag(ctx context.Context, clone, revision string, modules []*part) error {
	if _, err := git(ctx, r.root, nil, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", clone, "HEAD"); err != nil {
		return err
	}
	names := make([]string, 0, len(modules))
	for _, m := range modules {
		name := m.tag(r.version)
		if _, err := git(ctx, r.root, nil, "tag", "--annotate", "--message", "trueup "+r.version, name, revision); err != nil {
			_, undone := git(ctx, r.root, nil, append([]string{"tag", "--delete"}, names...)...)
			return errors.Join(err, undone)
		}
		names = append(names, name)
	}
	fmt.Fprintf( //nolint:errcheck // progress
		r.log, "Commit %s has the tags %s.\nNothing is pushed. To publish the modules:\n\n  git push --atomic origin %s\n\n",
		revision, strings.Join(names, ", "), strings.Join(names, " "),
	)
	return nil
}
