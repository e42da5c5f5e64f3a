//go:build !unix || solaris || aix

package main

import (
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// localMachines fails: package local needs a Unix.
func localMachines(dir string) (cloud.Provider, error) {
	return nil, fmt.Errorf("machines in %s: %w", dir, errors.ErrUnsupported)
}
