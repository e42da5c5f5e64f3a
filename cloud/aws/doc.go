// Package aws makes machines of EC2 for package cloud: a [Provider] that batches,
// keeps to the account's request rates and never launches twice, and a [Resolver]
// that turns selectors into images, subnets, security groups and profiles.
//
// # Rates
//
// [NewClient] puts a [cloud.Limiter] before every attempt of every call. EC2's
// rates belong to an account and region, so that one limiter is shared by
// everything that uses the credential. [Limits] returns the published rates. A
// call that EC2 throttles all the same is a [cloud.RateLimitError] and is not
// tried again by the client: package cloud plans anew once the time is over.
//
// # Batches
//
// A launch of many machines is one RunInstances. Starts, stops, terminations and
// tags are calls for up to a thousand machines. EC2 refuses such a call as a
// whole when one machine is unknown, in a wrong state or without capacity. The
// provider then leaves out the machines that the error names, or divides the
// batch, so that one machine holds back no other.
//
// # Permissions
//
// The provider calls RunInstances, TerminateInstances, StartInstances,
// StopInstances, DescribeInstances and CreateTags, and nothing else. The resolver
// adds DescribeImages, DescribeSubnets and DescribeSecurityGroups where a class
// has selectors, and the calls of instance profiles and iam:PassRole where it
// names a role.
package aws
