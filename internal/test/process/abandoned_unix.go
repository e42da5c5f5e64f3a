//go:build unix

package process

import (
	"os"
	"path/filepath"
	"syscall"
)

// RemoveAbandoned removes the folders of tests that were killed: the folder of each lock file
// that matches the pattern of [filepath.Glob] and that no process has locked (flock).
func RemoveAbandoned(pattern string) {
	locks, err := filepath.Glob(pattern)
	if err != nil {
		return
	}
	for _, path := range locks {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(path)) //nolint:errcheck // best effort; the next start tries again
		}
		file.Close() //nolint:errcheck // nothing was written
	}
}
