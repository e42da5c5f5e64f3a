// Package podtest runs the pods of a Kubernetes of tests: a Node whose kubelet runs containers
// as processes of this machine, where no image can be pulled. A container has what its pod
// states: environment, files of Secrets, ConfigMaps and claims, user and group, a root that it
// cannot write to, an address of its own, probes, restarts, a grace at the end. An image is a
// set of files of this machine.
//
// It needs Linux, root and the program ip. It has no Services, resource limits, seccomp, exec
// probes and lifecycle hooks: a pod that asks for a kind of volume, or a probe, that is not
// there does not start and says so.
package podtest
