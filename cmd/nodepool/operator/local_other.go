//go:build !unix || solaris || aix

package operator

import (
	"context"
	"errors"
	"fmt"
)

// Open fails: package local needs flock and /bin/sh.
func (l Local) Open(_ context.Context, region string, _ Called) (Region, error) {
	return Region{}, fmt.Errorf("local machines in %s, region %s: %w on this system", l.Dir, region, errors.ErrUnsupported)
}
