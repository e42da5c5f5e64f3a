//go:build unix && !solaris && !aix

package db

import (
	"errors"
	"os"
	"syscall"
)

// take locks the file until it is closed, and returns false if another process has it.
func take(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
