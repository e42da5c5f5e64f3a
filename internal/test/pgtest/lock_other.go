//go:build !unix

package pgtest

import (
	"errors"
	"fmt"
)

const (
	folder   = "trueup-pg-"
	lockName = "lock"
)

// lock fails: the PostgreSQL of the tests needs a Unix.
func lock(dir string) (unlock func(), err error) {
	return nil, fmt.Errorf("lock %s: %w", dir, errors.ErrUnsupported)
}
