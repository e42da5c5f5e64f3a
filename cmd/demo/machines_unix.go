//go:build unix && !solaris && !aix

package main

import (
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

// localMachines opens the folder of machines that are processes.
func localMachines(dir string) (cloud.Provider, error) {
	return &local.Provider{Dir: dir, Grace: 1}, nil
}
