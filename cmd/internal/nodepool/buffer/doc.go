// Package buffer reads CapacityBuffers, the API of autoscaling.x-k8s.io by which a user
// asks a cluster for room that is free before pods need it, and says how many standby
// machines of which pool that takes. It does no I/O.
//
// # Which buffers
//
// Those with spec.provisioningStrategy [Strategy]: room on machines that are stopped. The
// API leaves the strategies beside its default, buffer.x-k8s.io/active-capacity, to the
// providers of capacity, who name theirs with their own domain:
// buffer.gke.io/standby-capacity is one. A buffer of another strategy, or of none, is that
// of another controller.
//
// # What is asked
//
// [CapacityBuffer.Units] is how many pods of the template are to have room: replicas, or
// percentage of the replicas of what scalableRef names, rounded up; the larger one if both
// are set; as many as limits allow if neither is, and never more.
//
// # What it takes
//
// [Plan] places these pods by [cloud.Demand], by the rules and the choice of a pool that
// hold for pods which wait, on the standby machines that the pools have and then on ones
// that they could launch. The result is a level, not an order: as many good standby
// machines as its pods are on. The pods of all buffers are placed together, so that no two
// buffers count on the same room. Pods that run already do not matter, except where the
// template wants to be near them or away from them.
//
// The types are our own, with the fields that are read and written here: those of the
// API's module cannot be had without the test and generator libraries that it imports.
package buffer
