//go:build unix && !solaris && !aix

package operator

import (
	"context"
	"path/filepath"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

// Open opens a region.
func (l Local) Open(_ context.Context, region string, _ Called) (Region, error) {
	zone := region + "a"
	return Region{
		Provider: desk{&local.Provider{Dir: filepath.Join(l.Dir, region), Zone: zone}, l.Command},
		Resolver: fixed{"local", zone},
	}, nil
}

// desk launches the command, whatever the image of the class is: a pool is the same when the
// program is somewhere else.
type desk struct {
	cloud.Provider

	command string
}

// LaunchInstance implements [cloud.Machines].
func (d desk) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	config.ImageID = d.command
	return d.Provider.LaunchInstance(ctx, config)
}
