//go:build unix && !solaris && !aix

package snapshot

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes the exclusive lock of a file, which it creates, and returns how to
// give it back. The kernel gives it back when the process dies.
func lockFile(path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			// Not by closing it alone: a process that is being started has the file,
			// too, until it runs its program.
			return func() error { return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close()) }, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = ErrSpoolLocked
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
}
