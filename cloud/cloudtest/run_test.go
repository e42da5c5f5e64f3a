package cloudtest_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

func TestFakeConforms(t *testing.T) {
	cloudtest.Run(t, func(*testing.T) cloudtest.Subject {
		return cloudtest.Subject{
			Provider:  &cloudtest.Fake{},
			Config:    cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.large"},
			Other:     cloud.LaunchConfig{ImageID: "image", InstanceType: "m5.xlarge"},
			UnknownID: "i-fake-999999",
		}
	})
}
