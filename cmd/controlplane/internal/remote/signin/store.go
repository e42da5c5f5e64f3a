// Package signin signs a command line in to a control plane with OpenID Connect, and keeps the
// tokens in a file of the user.
package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/filelock"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Entry is a sign-in to one control plane.
type Entry struct {
	// Issuer and ClientID are what the control plane named at the sign-in.
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	// IDToken is sent to the control plane until ExpiresAt, and RefreshToken to the issuer for the
	// next one. It is empty if the issuer gave none.
	IDToken      string    `json:"id_token"`
	RefreshToken string    `json:"refresh_token,omitempty"`
	ExpiresAt    time.Time `json:"expires_at"`
}

// Store is the file with the sign-ins, one for each control plane. Commands that run at the same
// time may share it. It is an error if others than its owner may read or write the file.
type Store struct {
	// Path of the file. Its folder is made if it is not there. Required.
	Path string
}

// DefaultPath returns the file in the folder of the user's settings.
func DefaultPath() (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, "trueup", "sign-ins.json"), nil
}

// key is the name of a control plane in the file.
func key(server string) string {
	to, err := url.Parse(server)
	if err != nil {
		return server
	}
	return strings.ToLower(to.Scheme) + "://" + strings.ToLower(to.Host)
}

// Get returns the sign-in to a control plane; ok is false if there is none.
func (s Store) Get(server string) (entry Entry, ok bool, err error) {
	all, err := s.read()
	entry, ok = all[key(server)]
	return entry, ok, err
}

func (s Store) read() (map[string]Entry, error) {
	all := map[string]Entry{}
	file, err := os.Open(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	const others = 0o077
	if mode := info.Mode().Perm(); mode&others != 0 {
		return nil, fmt.Errorf("%s has the mode %04o, must have 0600, as it has tokens that others must not use: run %s",
			s.Path, mode, program.CommandLine("chmod 600", s.Path))
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s has no sign-ins: remove it, and sign in again", s.Path) // the text may have tokens
	}
	return all, nil
}

// Put stores the sign-in to a control plane in place of the one of before.
func (s Store) Put(ctx context.Context, server string, entry Entry) error {
	return s.locked(ctx, func() error { return s.put(server, entry) })
}

// Delete removes the sign-in to a control plane, and returns it if there was one.
func (s Store) Delete(ctx context.Context, server string) (entry Entry, found bool, err error) {
	err = s.locked(ctx, func() error {
		all, err := s.read()
		if err != nil {
			return err
		}
		entry, found = all[key(server)]
		delete(all, key(server))
		return s.write(all)
	})
	return entry, found, err
}

func (s Store) put(server string, entry Entry) error {
	all, err := s.read()
	if err != nil {
		return err
	}
	all[key(server)] = entry
	return s.write(all)
}

// write replaces the file, which its owner alone can read.
func (s Store) write(all map[string]Entry) (err error) {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(s.Path), ".sign-ins-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), s.Path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// locked runs do while no other command changes the file.
func (s Store) locked(ctx context.Context, do func() error) (err error) {
	const again = 20 * time.Millisecond
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(s.Path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // it ends the lock
	for {
		taken, err := filelock.Take(lock)
		if err != nil {
			return &os.PathError{Op: "lock", Path: lock.Name(), Err: err}
		}
		if taken {
			return do()
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return fmt.Errorf("wait for another command that changes %s: %w", s.Path, ctx.Err())
		}
	}
}
