package operator

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

// Fake is a cloud in memory: machines that nothing boots. It shows what the operator
// would do in an account, without one.
type Fake struct{ cloud cloudtest.Fake }

// Open returns the one region that there is.
func (f *Fake) Open(_ context.Context, region string, called Called) (Region, error) {
	f.cloud.Fault = func(c cloudtest.Call) cloudtest.Fault {
		called("fake", c.Operation, 0, nil)
		return cloudtest.Fault{}
	}
	f.cloud.Transition = 100 * time.Millisecond
	return Region{Provider: &f.cloud, Resolver: fakeResolver{region}}, nil
}

// fakeResolver takes every class as it is.
type fakeResolver struct{ region string }

// Image returns an image that is always there.
func (fakeResolver) Image(context.Context, aws.Class) (id, name string, err error) {
	return "ami-fake", "fake", nil
}

// Subnets returns the subnets of the class, or one.
func (r fakeResolver) Subnets(_ context.Context, class aws.Class) ([]aws.Subnet, error) {
	if len(class.SubnetIDs) == 0 {
		return []aws.Subnet{{ID: "subnet-fake", Zone: "zone-a", FreeAddresses: -1}}, nil
	}
	var out []aws.Subnet
	for _, id := range class.SubnetIDs {
		out = append(out, aws.Subnet{ID: id, Zone: "zone-a", FreeAddresses: -1})
	}
	return out, nil
}

// SecurityGroups returns the groups of the class.
func (fakeResolver) SecurityGroups(_ context.Context, class aws.Class) ([]string, error) {
	return append([]string{}, class.SecurityGroupIDs...), nil
}

// InstanceProfile returns the profile of the class.
func (fakeResolver) InstanceProfile(_ context.Context, class aws.Class) (string, error) {
	return class.InstanceProfile, nil
}

// DeleteInstanceProfile does nothing.
func (fakeResolver) DeleteInstanceProfile(context.Context, aws.Class) error { return nil }
