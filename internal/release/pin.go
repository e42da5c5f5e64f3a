package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// unreleased is the version by which the modules require each other between releases.
const unreleased = "v0.0.0"

// part is a module of the workspace.
type part struct {
	dir  string // relative to the root, which is "."
	path string
	// needs are the folders of the modules that it requires.
	needs []string

	// The following are known once it is pinned.
	zip, mod string // hashes
}

// tag is the name of its tag, as the go command looks for it.
func (p *part) tag(version string) string {
	return path.Join(p.dir, version)
}

// parts returns the modules of the workspace, each after those that it requires.
func (r *release) parts(ctx context.Context) ([]*part, error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "work", "edit", "-json", filepath.Join(root, "go.work"))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go work edit: %w", err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return nil, fmt.Errorf("go work edit: %w", err)
	}
	files := map[string]*modfile.File{}
	dirs := map[string]string{} // by path of the module
	for _, use := range work.Use {
		dir := path.Clean(use.DiskPath)
		file, err := readMod(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		if len(file.Replace) > 0 {
			return nil, fmt.Errorf("%s/go.mod: has a replace of %s: a module that is published must have none", dir, file.Replace[0].Old.Path)
		}
		files[dir], dirs[file.Module.Mod.Path] = file, dir
	}
	var ordered []*part
	seen := map[string]bool{}
	var visit func(dir string) error
	visit = func(dir string) error {
		done, known := seen[dir]
		if known && !done {
			return fmt.Errorf("%s/go.mod: requires itself by way of others: such modules have no hashes", dir)
		}
		if known {
			return nil
		}
		seen[dir] = false
		p := &part{dir: dir, path: files[dir].Module.Mod.Path}
		for _, require := range files[dir].Require {
			if other, ours := dirs[require.Mod.Path]; ours {
				p.needs = append(p.needs, other)
				if err := visit(other); err != nil {
					return err
				}
			}
		}
		seen[dir] = true
		ordered = append(ordered, p)
		return nil
	}
	for _, use := range work.Use {
		if err := visit(path.Clean(use.DiskPath)); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

func readMod(dir string) (*modfile.File, error) {
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// pin changes the modules of a clone so that they require each other at the version, with
// the checksums of what the go command will download, and commits it. The same commit and
// version give the same commit again: it has the author and the time of its parent.
func (r *release) pin(ctx context.Context, clone string, modules []*part) (revision string, err error) {
	known := map[string]*part{}
	// First of all: it is a file of the root module, and part of its hash.
	if err := pinWork(filepath.Join(clone, "go.work"), r.version, modules); err != nil {
		return "", err
	}
	for _, m := range modules {
		if err := m.pin(filepath.Join(clone, m.dir), r.version, known); err != nil {
			return "", fmt.Errorf("%s: %w", m.path, err)
		}
		if _, err := git(ctx, clone, nil, "add", "--all"); err != nil {
			return "", err
		}
		tree, err := git(ctx, clone, nil, "write-tree")
		if err != nil {
			return "", err
		}
		if err := m.hash(clone, r.version, tree); err != nil {
			return "", err
		}
		known[m.dir] = m
	}
	before, err := git(ctx, clone, nil, "log", "-1", "--format=%an%n%ae%n%cI")
	if err != nil {
		return "", err
	}
	person := strings.Split(before, "\n")
	if len(person) != 3 {
		return "", fmt.Errorf("git log: %q has no name, address and time", before)
	}
	env := []string{
		"GIT_AUTHOR_NAME=" + person[0], "GIT_AUTHOR_EMAIL=" + person[1], "GIT_AUTHOR_DATE=" + person[2],
		"GIT_COMMITTER_NAME=" + person[0], "GIT_COMMITTER_EMAIL=" + person[1], "GIT_COMMITTER_DATE=" + person[2],
	}
	if _, err := git(
		ctx, clone, env, "commit", "--quiet", "--all", "--no-verify", "--no-gpg-sign", "--message", "release "+r.version,
	); err != nil {
		return "", err
	}
	return git(ctx, clone, nil, "rev-parse", "HEAD")
}

// pin changes go.mod and go.sum in the folder of the module.
func (p *part) pin(dir, version string, known map[string]*part) error {
	file, err := readMod(dir)
	if err != nil {
		return err
	}
	for _, need := range p.needs {
		if err := file.AddRequire(known[need].path, version); err != nil {
			return err
		}
	}
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644); err != nil { //nolint:gosec // as git has it
		return err
	}
	p.mod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	if err != nil || len(p.needs) == 0 {
		return err
	}
	name := filepath.Join(dir, "go.sum")
	sums, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	added, err := addSums(string(sums), version, p.all(known))
	if err != nil {
		return fmt.Errorf("go.sum: %w", err)
	}
	return os.WriteFile(name, []byte(added), 0o644) //nolint:gosec // as git has it
}

// all returns the modules that it requires, and what these require.
func (p *part) all(known map[string]*part) []*part {
	var found []*part
	for _, need := range p.needs {
		for _, m := range append(known[need].all(known), known[need]) {
			if !slices.Contains(found, m) {
				found = append(found, m)
			}
		}
	}
	return found
}

// addSums returns the lines of go.sum with those of the modules, in the order of the go
// command, and without those of other versions of them.
func addSums(sums, version string, modules []*part) (string, error) {
	hashes := map[module.Version]string{}
	for line := range strings.Lines(sums) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return "", fmt.Errorf("%q is no line of module, version and hash", line)
		}
		if !slices.ContainsFunc(modules, func(m *part) bool { return m.path == fields[0] }) {
			hashes[module.Version{Path: fields[0], Version: fields[1]}] = fields[2]
		}
	}
	for _, m := range modules {
		hashes[module.Version{Path: m.path, Version: version}] = m.zip
		hashes[module.Version{Path: m.path, Version: version + "/go.mod"}] = m.mod
	}
	var keys []module.Version
	for key := range hashes {
		keys = append(keys, key)
	}
	module.Sort(keys)
	var all strings.Builder
	for _, key := range keys {
		all.WriteString(key.Path + " " + key.Version + " " + hashes[key] + "\n")
	}
	return all.String(), nil
}

// hash makes the archive of the module that the go command will download, and keeps its
// hash.
func (p *part) hash(clone, version, tree string) error {
	into, err := os.CreateTemp("", "trueup-module-*.zip")
	if err != nil {
		return err
	}
	defer os.Remove(into.Name()) //nolint:errcheck // a temporary file
	if err := errors.Join(p.write(into, clone, version, tree), into.Close()); err != nil {
		return err
	}
	p.zip, err = dirhash.HashZip(into.Name(), dirhash.Hash1)
	return err
}

// write writes the archive of the module at a commit or tree of the clone.
func (p *part) write(into io.Writer, clone, version, tree string) error {
	subdir := p.dir
	if subdir == "." {
		subdir = ""
	}
	return zip.CreateFromVCS(into, module.Version{Path: p.path, Version: version}, clone, tree, subdir)
}

// pinWork lets the replaces of the workspace be for the version that the modules require.
func pinWork(name, version string, modules []*part) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed := string(text)
	for _, m := range modules {
		was := m.path + " " + unreleased + " =>"
		if !strings.Contains(changed, was) {
			return fmt.Errorf("go.work: has no replace of %s %s", m.path, unreleased)
		}
		changed = strings.ReplaceAll(changed, was, m.path+" "+version+" =>")
	}
	return os.WriteFile(name, []byte(changed), 0o644) //nolint:gosec // as git has it
}
