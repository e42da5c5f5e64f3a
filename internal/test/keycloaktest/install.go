package keycloaktest

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Version is the version of Keycloak, checksum the SHA-256 of its archive.
const (
	Version  = "26.7.3"
	checksum = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
	archive  = "https://repo1.maven.org/maven2/org/keycloak/keycloak-quarkus-dist/" + Version + "/keycloak-quarkus-dist-" + Version + ".zip"
)

// install returns the folder of a Keycloak that is built for a database in memory. It is
// made beside its place and then renamed, so that one that is there is whole; of two at a
// time, the second is thrown away.
func install(ctx context.Context) (place string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "trueup")
	place = filepath.Join(parent, "keycloak-"+Version)
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(parent, "keycloak-*.tmp")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // empty if it was renamed
	if err := download(ctx, filepath.Join(temporary, "archive.zip")); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if err := unpack(filepath.Join(temporary, "archive.zip"), temporary); err != nil {
		return "", err
	}
	made := filepath.Join(temporary, "keycloak-"+Version)
	if out, err := exec.CommandContext(ctx, "java", java(made, "build", "--db=dev-mem", "--cache=local")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: build: %w\n%s", ErrNotInstalled, err, out)
	}
	if err := os.Rename(made, place); err != nil {
		if _, there := os.Stat(place); there != nil {
			return "", err
		}
	}
	return place, nil
}

func download(ctx context.Context, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, archive, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", archive, response.Status)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, hash), response.Body)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != checksum {
		return fmt.Errorf("%s: its SHA-256 is %s, not %s", archive, sum, checksum)
	}
	return nil
}

func unpack(from, to string) error {
	all, err := zip.OpenReader(from)
	if err != nil {
		return err
	}
	defer all.Close() //nolint:errcheck // it was read
	for _, f := range all.File {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("%s: %s is outside of the archive", from, f.Name)
		}
		path := filepath.Join(to, f.Name)
		if strings.HasSuffix(f.Name, "/") {
			if err := os.MkdirAll(path, 0o750); err != nil {
				return err
			}
			continue
		}
		if err := unpackFile(f, path); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(f *zip.File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was read
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, f.Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
