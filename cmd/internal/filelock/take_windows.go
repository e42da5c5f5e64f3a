package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Take locks the file until it is closed, and returns false if another process has it.
func Take(file *os.File) (bool, error) {
	err := windows.LockFileEx(
		windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{},
	)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
