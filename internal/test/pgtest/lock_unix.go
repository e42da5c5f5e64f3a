//go:build unix

package pgtest

import (
	"os"
	"path/filepath"
	"syscall"
)

const (
	folder   = "trueup-pg-"
	lockName = "lock"
)

// lock marks the folder as in use until this process ends. The file gets its name once it
// is locked: another process that looks for abandoned folders never sees it free.
func lock(dir string) (unlock func(), err error) {
	file, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return nil, &os.PathError{Op: "flock", Path: file.Name(), Err: err}
	}
	if err := os.Rename(file.Name(), filepath.Join(dir, lockName)); err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return func() { file.Close() }, nil //nolint:errcheck // nothing was written
}
