//go:build !unix || solaris || aix

package snapshot

import (
	"errors"
	"fmt"
)

// lockFile fails: a spool with two writers would lose records.
func lockFile(path string) (unlock func() error, err error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}
