package aws

import (
	"errors"
	"fmt"
)

// A Class describes the machines of a pool as a person writes it, with selectors for
// ids that change.
type Class struct {
	// Bootstrap is how the image joins the cluster. It selects the image if there is no
	// Image selector, and is required then.
	Bootstrap Bootstrap

	// Architecture is "x86_64" or "arm64". Required.
	Architecture string

	// KubernetesVersion is the minor version, such as "1.34". Required without an
	// Image selector.
	KubernetesVersion string

	// ImageID names the image. The fields that select one are ignored then.
	ImageID string

	// Image selects the newest image that fits. Nil means the newest of Bootstrap,
	// Architecture and KubernetesVersion by Amazon.
	Image *ImageSelector

	// SubnetIDs or SubnetSelector: exactly one. A selector is a set of tags that
	// all must match; the value "*" matches any.
	SubnetIDs      []string
	SubnetSelector map[string]string

	// SecurityGroupIDs or SecurityGroupSelector: exactly one.
	SecurityGroupIDs      []string
	SecurityGroupSelector map[string]string

	// InstanceProfile, a name or an ARN, or Role: at most one. For a role, the profile
	// ProfileName is made.
	InstanceProfile string
	Role            string
	ProfileName     string
}

// Bootstrap is a family of images.
type Bootstrap string

// The families of images that EKS publishes.
const (
	AL2023       Bootstrap = "AL2023"
	AL2          Bootstrap = "AL2"
	Bottlerocket Bootstrap = "Bottlerocket"
)

// An ImageSelector selects images by all fields that are set.
type ImageSelector struct {
	Tags map[string]string
	// Name may have the wildcards * and ?.
	Name string
	// Owner is an account, "self" or "amazon". Empty means "self".
	Owner string
}

// Resolved is a class with ids.
type Resolved struct {
	ImageID, ImageName string
	// Subnets are ordered by zone and id.
	Subnets          []Subnet
	SecurityGroupIDs []string
	InstanceProfile  string
}

// A Subnet is where machines can be launched.
type Subnet struct {
	ID, Zone string
	// FreeAddresses is how many machines fit; -1 if the subnet was named by id
	// and not looked up.
	FreeAddresses int
}

// Validate returns an error for each field that cannot be resolved, joined.
func (c Class) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("aws: Class."+format, args...)) }
	if c.Architecture != "x86_64" && c.Architecture != "arm64" {
		wrong(`Architecture: is %q, must be "x86_64" or "arm64"`, c.Architecture)
	}
	switch {
	case c.ImageID != "":
	case c.Image == nil:
		if c.imageNames() == nil {
			wrong(`Bootstrap: is %q, must be "AL2023", "AL2" or "Bottlerocket"`, c.Bootstrap)
		}
		if c.KubernetesVersion == "" {
			wrong("KubernetesVersion: is required without an Image selector")
		}
	case len(c.Image.Tags) == 0 && c.Image.Name == "":
		wrong("Image: must set Tags or Name")
	}
	if (len(c.SubnetIDs) > 0) == (len(c.SubnetSelector) > 0) {
		wrong("SubnetIDs: exactly one of SubnetIDs and SubnetSelector is required")
	}
	if (len(c.SecurityGroupIDs) > 0) == (len(c.SecurityGroupSelector) > 0) {
		wrong("SecurityGroupIDs: exactly one of SecurityGroupIDs and SecurityGroupSelector is required")
	}
	if c.InstanceProfile != "" && c.Role != "" {
		wrong("InstanceProfile: must be empty with Role")
	}
	if c.Role != "" && c.ProfileName == "" {
		wrong("ProfileName: is required with Role")
	}
	return errors.Join(errs...)
}

// imageNames are the patterns of the names under which EKS publishes images. AL2
// images for x86_64 carry no architecture in their name, those for arm64 have it
// in front.
func (c Class) imageNames() []string {
	switch c.Bootstrap {
	case AL2023:
		return []string{fmt.Sprintf("amazon-eks-node-al2023-%s-standard-%s-*", c.Architecture, c.KubernetesVersion)}
	case AL2:
		names := []string{fmt.Sprintf("amazon-eks-node-%s-%s-*", c.KubernetesVersion, c.Architecture)}
		if c.Architecture == "arm64" {
			return append(names, fmt.Sprintf("amazon-eks-arm64-node-%s-*", c.KubernetesVersion))
		}
		return append(names, fmt.Sprintf("amazon-eks-node-%s-v*", c.KubernetesVersion))
	case Bottlerocket:
		return []string{fmt.Sprintf("bottlerocket-aws-k8s-%s-%s-*", c.KubernetesVersion, c.Architecture)}
	default:
		return nil
	}
}
