package operator

import (
	"context"
	"path/filepath"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

// LocalCloud begins the providerIDs of local machines.
const LocalCloud = "local"

// LocalRegion is the region of local machines whose class names none.
const LocalRegion = "local-1"

// Local opens regions whose machines are processes of this machine. Each has one zone.
type Local struct {
	// Dir is the folder of the machines, with a folder for each region.
	Dir string
	// Command is the program that a machine runs, with the words and quotes of /bin/sh.
	Command string
}

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
