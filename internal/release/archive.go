package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archive builds a release: an archive for each platform, an image and a bill of materials
// for each program, release notes, and the checksums of all.
func (r *release) archive(ctx context.Context) error {
	revision, at, err := r.commit(ctx)
	if err != nil {
		return err
	}
	if err := r.images(ctx, ""); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.pack(p, at); err != nil {
			return err
		}
	}
	for _, program := range r.programs {
		if err := r.bill(program, r.binary(program, r.platforms[0]), revision, at); err != nil {
			return fmt.Errorf("bill of materials of %s: %w", program, err)
		}
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := notesOf(string(changes), r.version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "RELEASE_NOTES.md"), []byte(notes), 0o644); err != nil { //nolint:gosec // it is published
		return err
	}
	if err := os.RemoveAll(filepath.Join(r.out, "bin")); err != nil {
		return err
	}
	return r.checksums()
}

// pack makes the archive of a platform.
func (r *release) pack(p platform, at time.Time) (err error) {
	name := fmt.Sprintf("trueup_%s_%s_%s", r.version, p.system, p.architecture)
	into, err := os.Create(filepath.Join(r.out, name+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	compressed, err := gzip.NewWriterLevel(into, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	for _, program := range r.programs {
		if err := add(w, r.binary(program, p), name+"/"+program, 0o755, at); err != nil {
			return err
		}
	}
	for _, text := range []string{"LICENSE", "README.md"} {
		if err := add(w, filepath.Join(r.root, text), name+"/"+text, 0o644, at); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

func add(w *tar.Writer, path, name string, mode int64, at time.Time) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(
		&tar.Header{Name: name, Size: int64(len(content)), Mode: mode, ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX},
	); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// checksums writes the SHA-256 of each file of the release, in the order of the names.
func (r *release) checksums() error {
	const list = "SHA256SUMS"
	sums := map[string]string{}
	err := filepath.WalkDir(r.out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == list {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it is read
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		sums[filepath.ToSlash(name)] = hex.EncodeToString(sum.Sum(nil))
		return err
	})
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		lines.WriteString(sums[name] + "  " + name + "\n")
	}
	return os.WriteFile(filepath.Join(r.out, list), []byte(lines.String()), 0o644) //nolint:gosec // it is published
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
