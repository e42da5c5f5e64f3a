//go:build unix

package modbuild

import (
	"context"
	"os"
	"syscall"
	"time"
)

// Lock takes the exclusive lock of a file, which it creates, and returns
// how to give it back. The kernel gives it back when the process dies. When the
// file's folder is removed before the lock is taken, the error is fs.ErrNotExist.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// process.RemoveAbandoned may have been first, and the lock be of a file
			// that is gone.
			if _, err := os.Stat(path); err != nil {
				file.Close() //nolint:errcheck // nothing was written
				return nil, err
			}
			return func() { file.Close() }, nil //nolint:errcheck // nothing was written
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			file.Close() //nolint:errcheck // nothing was written
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
		select {
		case <-ctx.Done():
			file.Close() //nolint:errcheck // nothing was written
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
