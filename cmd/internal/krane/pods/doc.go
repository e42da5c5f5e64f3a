// Package pods says what runs of a deployment: it turns pods into the instances
// that are reported to the control plane.
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
// Whether a container has been restarted often is known only to who has watched
// it: [History] remembers that. A container that is seen for the first time with
// many restarts behind it counts as crashing if it waits for the next one and the
// last run was short.
//
// Nothing here does I/O or asks the time.
package pods
