// Package cloudtest tests providers and users of package cloud: [Run] is the contract
// of a provider as a test, [Fake] is a cloud in memory that fails like a real one, and
// [Cluster] is the cluster of its machines, which boot, join, attest their warm-up, run
// pods and stop. The Fake has no hook for a boot: a Cluster looks at its machines in each
// step, which also finds a machine whose launch had no answer.
//
// All of them use package time, and run in virtual time inside a bubble of
// testing/synctest.
package cloudtest
