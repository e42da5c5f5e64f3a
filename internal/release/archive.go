package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// archive builds a release: an archive for each platform, images and a bill of materials
// for each program, what to install in a cluster, release notes, provenance, the checksums
// of all, and their signature.
func (r *release) archive(ctx context.Context) error {
	revision, at, err := r.commit(ctx)
	if err != nil {
		return err
	}
	// First what can be wrong: the builds take most of an hour.
	if err := r.signable(); err != nil {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := notesOf(string(changes), r.version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // it is published
		return err
	}
	if err := r.write("RELEASE_NOTES.md", []byte(notes)); err != nil {
		return err
	}
	if err := r.images(ctx, ""); err != nil {
		return err
	}
	help, err := r.help(ctx, at)
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.pack(ctx, p, help, at); err != nil {
			return err
		}
	}
	for _, program := range r.programs {
		if err := r.bill(program, r.binary(program, r.platforms[0]), revision, at); err != nil {
			return fmt.Errorf("bill of materials of %s: %w", program, err)
		}
	}
	if err := r.install(at); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(r.out, "bin")); err != nil {
		return err
	}
	if err := r.provenance(revision); err != nil {
		return err
	}
	if err := r.checksums(); err != nil {
		return err
	}
	return r.sign()
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, filepath.FromSlash(name)), content, 0o644) //nolint:gosec // it is published
}

// help returns the manual pages and completions of the programs. They are written by the
// programs themselves, so these are built for this machine, too.
func (r *release) help(ctx context.Context, at time.Time) ([]entry, error) {
	var all []entry
	for _, program := range r.programs {
		binary, err := r.build(ctx, program, platform{runtime.GOOS, runtime.GOARCH})
		if err != nil {
			return nil, err
		}
		call := func(args ...string) ([]byte, error) {
			cmd := exec.CommandContext(ctx, binary, args...)
			cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix())) // the date of the pages
			out, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", program, args[0], err)
			}
			return out, nil
		}
		for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
			text, err := call("completion", shell)
			if err != nil {
				return nil, err
			}
			all = append(all, entry{"completions/" + program + "." + shell, text, 0o644})
		}
		pages := filepath.Join(r.out, "bin", "man-"+program)
		if err := os.MkdirAll(pages, 0o755); err != nil { //nolint:gosec // as the folder around it
			return nil, err
		}
		if _, err := call("man", pages); err != nil {
			return nil, err
		}
		list, err := os.ReadDir(pages)
		if err != nil {
			return nil, err
		}
		for _, page := range list {
			text, err := os.ReadFile(filepath.Join(pages, page.Name()))
			if err != nil {
				return nil, err
			}
			all = append(all, entry{"man/man1/" + page.Name(), text, 0o644})
		}
	}
	return all, nil
}

// pack makes the archive of a platform: a zip for Windows.
func (r *release) pack(ctx context.Context, p platform, help []entry, at time.Time) error {
	var entries []entry
	for _, program := range r.programs {
		binary, err := r.build(ctx, program, p)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		entries = append(entries, entry{filepath.Base(binary), content, 0o755})
	}
	for _, text := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(r.root, text))
		if err != nil {
			return err
		}
		entries = append(entries, entry{text, content, 0o644})
	}
	name := fmt.Sprintf("trueup_%s_%s_%s", r.version, p.system, p.architecture)
	entries = slices.Concat(entries, help)
	if p.system == "windows" {
		return r.zip(name, entries, at)
	}
	return r.tar(name+".tar.gz", name, entries, at)
}

// notesOf returns the section of a version in the changes, or else the section of
// unreleased changes.
func notesOf(changes, version string) (string, error) {
	for _, title := range []string{"## " + version, "## Unreleased"} {
		_, section, found := strings.Cut(changes, "\n"+title+"\n")
		if !found {
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		return "# trueup " + version + "\n\n" + strings.TrimSpace(section) + "\n", nil
	}
	return "", fmt.Errorf("CHANGELOG.md has neither a section %s nor one Unreleased", version)
}
