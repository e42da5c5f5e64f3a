// Package pods turns the pods of a deployment into the instances that are reported
// to the control plane.
//
//   - A pod without an address, and one that has ended (Succeeded, Failed), is no
//     instance.
//   - RUNNING is a pod that runs and whose containers are ready, and that is not
//     being deleted.
//   - FAILED is a pod that is not ready and crashes again and again: a container
//     of it has been restarted three times within five minutes. It stays so until
//     it is ready, or five minutes have passed without a restart and none is due.
//   - Every other one is PENDING.
//
// A pod has the number of its restarts and not their times; [History] has these. A
// container that is observed for the first time with many restarts counts as
// crashing if it waits for the next one and the last run was short.
//
// The package does no I/O and takes the time as an argument.
package pods
