// Package aws implements package cloud for EC2: a [Provider] that batches, keeps to the
// account's request rates and never launches twice, and a [Resolver] that turns
// selectors into images, subnets, security groups and profiles.
//
// # Rates
//
// [NewClient] puts a [cloud.Limiter] before every attempt of every call. EC2's rates
// belong to an account and region, so all users of the credential share one limiter.
// [Limits] returns the published rates. A call that EC2 throttles nevertheless is a
// [cloud.RateLimitError]. The client does not retry it: package cloud makes a new plan
// once the time is over.
//
// # Batches
//
// A launch of many machines is one RunInstances. Starts, stops, terminations and
// tags are calls for up to a thousand machines. EC2 refuses such a call as a
// whole when one machine is unknown, in a wrong state or without capacity. The
// provider then leaves out the machines that the error names, or divides the batch: one
// machine holds back no other.
//
// # Permissions
//
// The provider calls RunInstances, TerminateInstances, StartInstances,
// StopInstances, DescribeInstances and CreateTags, and nothing else. The resolver
// adds DescribeImages, DescribeSubnets and DescribeSecurityGroups where a class
// has selectors, and the calls of instance profiles and iam:PassRole where it
// names a role.
package aws
