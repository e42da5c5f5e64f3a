// Package aws is the place of the EC2 provider. It holds nothing yet: there is
// no code to import. It is a module of its own so that only its users will
// download the AWS SDK.
package aws
