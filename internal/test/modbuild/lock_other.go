//go:build !unix

package modbuild

import (
	"context"
	"errors"
	"fmt"
)

// Lock fails: the Kubernetes of the tests needs a Unix.
func Lock(_ context.Context, path string) (unlock func(), err error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}
