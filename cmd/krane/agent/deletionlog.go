package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// deletionLog remembers when orphans were deleted, so that a limit within a window holds. With
// a folder it does so over a restart: an agent that crashes after each deletion has not
// its whole limit again. It belongs to one goroutine.
type deletionLog struct {
	// folder is where the file is. Empty: in memory.
	folder string
	// window is how long a deletion counts.
	window time.Duration

	read bool
	at   []time.Time // oldest first
}

// used returns how many deletions of the window are known. An error says that this is
// not known, and that no object may be deleted.
func (l *deletionLog) used(now time.Time) (int, error) {
	if !l.read && l.folder != "" {
		if err := l.load(); err != nil {
			return 0, err
		}
	}
	l.read = true
	// A clock that was set back does not make the window longer.
	l.at = slices.DeleteFunc(l.at, func(at time.Time) bool { return now.Sub(at).Abs() >= l.window })
	return len(l.at), nil
}

// reserve records n deletions before they happen. The function that it returns corrects the
// number to the deletions that did happen.
func (l *deletionLog) reserve(now time.Time, n int) (settle func(deleted int) error, err error) {
	before := slices.Clone(l.at)
	note := func(n int) error {
		l.at = append(slices.Clone(before), slices.Repeat([]time.Time{now.UTC()}, n)...)
		return l.save()
	}
	if err := note(n); err != nil {
		l.at = before
		return nil, err
	}
	return func(deleted int) error {
		if deleted == n {
			return nil
		}
		return note(deleted)
	}, nil
}

func (l *deletionLog) file() string { return filepath.Join(l.folder, "deletions.json") }

func (l *deletionLog) load() error {
	text, err := os.ReadFile(l.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("state_dir: deletions of an earlier agent: %w", err)
	}
	if err := json.Unmarshal(text, &l.at); err != nil {
		return fmt.Errorf(
			"state_dir: deletions of an earlier agent: %s: %w: remove the file if no agent has deleted anything within %s",
			l.file(),
			err,
			l.window,
		)
	}
	return nil
}

func (l *deletionLog) save() error {
	if l.folder == "" {
		return nil
	}
	text, err := json.Marshal(l.at)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.folder, 0o700); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	if err := renameio.WriteFile(l.file(), text, 0o600); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	return nil
}
