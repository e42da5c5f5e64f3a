//go:build unix && !solaris && !aix

package local_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/local"
)

func TestLocalConforms(t *testing.T) {
	dir := t.TempDir()
	cloudtest.Run(t, func(*testing.T) cloudtest.Subject {
		return cloudtest.Subject{
			Provider: &local.Provider{Dir: dir},
			Second:   &local.Provider{Dir: dir}, NoZone: true, NoAddress: true,
			Config:    cloud.LaunchConfig{ImageID: "sleep 1000", InstanceType: "small"},
			Other:     cloud.LaunchConfig{ImageID: "sleep 1000", InstanceType: "large"},
			UnknownID: "local-00000000000000000000000000000000",
		}
	})
}

var _ = fmt.Sprint
var _ = os.Args
var _ = signal.Notify
var _ = syscall.SIGTERM
var _ = time.Now
var _ = context.Background
