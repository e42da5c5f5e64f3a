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
func (f *Fake) Open(_ context.Context, _ string, called Called) (Region, error) {
	f.cloud.Fault = func(c cloudtest.Call) cloudtest.Fault {
		called("fake", c.Operation, 0, nil)
		return cloudtest.Fault{}
	}
	f.cloud.Transition = 100 * time.Millisecond
	return Region{Provider: &f.cloud, Resolver: fixed{"fake", "zone-a"}}, nil
}

// fixed is the resolver of a cloud that has what every class names.
type fixed struct{ name, zone string }

// Image returns an image that is always there.
func (r fixed) Image(context.Context, aws.Class) (id, name string, err error) {
	return "ami-" + r.name, r.name, nil
}

// Subnets returns the subnets of the class, or one.
func (r fixed) Subnets(_ context.Context, class aws.Class) ([]aws.Subnet, error) {
	if len(class.SubnetIDs) == 0 {
		return []aws.Subnet{{ID: "subnet-" + r.name, Zone: r.zone, FreeAddresses: -1}}, nil
	}
	var out []aws.Subnet
	for _, id := range class.SubnetIDs {
		out = append(out, aws.Subnet{ID: id, Zone: r.zone, FreeAddresses: -1})
	}
	return out, nil
}

// SecurityGroups returns the groups of the class.
func (fixed) SecurityGroups(_ context.Context, class aws.Class) ([]string, error) {
	return append([]string{}, class.SecurityGroupIDs...), nil
}

// InstanceProfile returns the profile of the class.
func (fixed) InstanceProfile(_ context.Context, class aws.Class) (string, error) {
	return class.InstanceProfile, nil
}

// DeleteInstanceProfile does nothing.
func (fixed) DeleteInstanceProfile(context.Context, aws.Class) error { return nil }
