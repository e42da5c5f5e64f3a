//go:build unix && !solaris && !aix

package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

// A machine is launched, and found again by its tags and by its token. Then it is stopped,
// started and terminated.
func Example() {
	dir, err := os.MkdirTemp("", "machines-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	provider := &local.Provider{Dir: dir}
	config := cloud.LaunchConfig{
		Token: "launch-1", ImageID: "sleep 1000", InstanceType: "small",
		Tags: map[string]string{"example.com/pool": "batch"},
	}
	machine, err := provider.LaunchInstance(ctx, config)
	fmt.Println(err, cloud.Wait(ctx, provider, machine.ID, cloud.InstanceRunning))

	restarted := &local.Provider{Dir: dir}
	found, err := restarted.ListInstances(ctx, config.Tags)
	fmt.Println(err, len(found), found[0].State, found[0].InstanceType)
	again, err := restarted.LaunchInstance(ctx, config)
	fmt.Println(err, again.ID == machine.ID)

	fmt.Println(restarted.StopInstance(ctx, machine.ID, false), cloud.Wait(ctx, restarted, machine.ID, cloud.InstanceStopped))
	fmt.Println(restarted.StartInstance(ctx, machine.ID), cloud.Wait(ctx, restarted, machine.ID, cloud.InstanceRunning))
	fmt.Println(restarted.TerminateInstance(ctx, machine.ID), cloud.Wait(ctx, restarted, machine.ID, cloud.InstanceTerminated))
	_, err = restarted.GetInstance(ctx, machine.ID)
	fmt.Println(errors.Is(err, cloud.ErrNotFound))

	// Output:
	// <nil> <nil>
	// <nil> 1 running small
	// <nil> true
	// <nil> <nil>
	// <nil> <nil>
	// <nil> <nil>
	// true
}
