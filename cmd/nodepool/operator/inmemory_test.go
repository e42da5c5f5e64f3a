package operator_test

import (
	"context"

	"github.com/seed-9e1ffd66/trueup/cloud/aws"
)

// inMemory resolves every class to the same.
type inMemory struct{}

func (inMemory) Image(_ context.Context, class aws.Class) (id, name string, err error) {
	return class.ImageID, "", nil
}

func (inMemory) Subnets(context.Context, aws.Class) ([]aws.Subnet, error) {
	return []aws.Subnet{{ID: "subnet-a", Zone: "zone-a"}}, nil
}

func (inMemory) SecurityGroups(context.Context, aws.Class) ([]string, error) {
	return []string{"sg-1"}, nil
}

func (inMemory) InstanceProfile(context.Context, aws.Class) (string, error) { return "p", nil }

func (inMemory) DeleteInstanceProfile(context.Context, aws.Class) error { return nil }
