//go:build !unix

package kubetest

import (
	"context"
	"errors"
	"fmt"
)

// lockFile fails: the Kubernetes of the tests needs a Unix.
func lockFile(_ context.Context, path string) (unlock func(), err error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}
