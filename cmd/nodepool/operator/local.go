package operator

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

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
		Provider: &desk{
			Provider: &local.Provider{Dir: filepath.Join(l.Dir, region), Zone: zone}, command: l.Command, ended: map[string]ended{},
		},
		Resolver: fixed{"local", zone},
	}, nil
}

// desk launches the command, whatever the image of the class is: a pool is the same when the
// program is somewhere else. Its lists have the machines that it has terminated for an hour,
// as those of EC2 do: the pool need not wait until their absence is proven.
type desk struct {
	cloud.Provider

	command string
	mu      sync.Mutex
	ended   map[string]ended
}

type ended struct {
	cloud.Instance

	at time.Time
}

// LaunchInstance implements [cloud.Machines].
func (d *desk) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	config.ImageID = d.command
	return d.Provider.LaunchInstance(ctx, config)
}

// TerminateInstance implements [cloud.Machines].
func (d *desk) TerminateInstance(ctx context.Context, id string) error {
	i, err := d.GetInstance(ctx, id)
	if err == nil {
		err = d.Provider.TerminateInstance(ctx, id)
	}
	if err != nil {
		return err
	}
	i.State = cloud.InstanceTerminated
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended[id] = ended{i, time.Now()}
	return nil
}

// ListInstances implements [cloud.Inventory].
func (d *desk) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	d.mu.Lock()
	maps.DeleteFunc(d.ended, func(_ string, e ended) bool { return time.Since(e.at) > time.Hour })
	before := maps.Clone(d.ended) // what a later list lacks of these is gone
	d.mu.Unlock()
	list, err := d.Provider.ListInstances(ctx, tags)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		delete(before, i.ID)
	}
	for _, e := range before {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(tags)), func(key string) bool { return e.Tags[key] != tags[key] }) {
			list = append(list, e.Instance)
		}
	}
	return list, nil
}
