// Package buffers keeps standby machines for CapacityBuffers, the API of autoscaling.x-k8s.io by which a
// user asks a cluster for room that is free before pods need it.
//
//	CapacityBuffers, templates -> Controller -> statuses, Events
//	pools.ScaleUp              ->     |
//	                                  v Standby
//	                              pools.Pass -> cloud.Want.Standby
//
// # Which buffers
//
// Buffers whose spec.provisioningStrategy is [Controller].Strategy: room on machines that are stopped. The
// API leaves the strategies beside its default, buffer.x-k8s.io/active-capacity, to the
// capacity providers, which name theirs with their own domain:
// buffer.gke.io/standby-capacity is one. A buffer with another strategy, or with none,
// belongs to another controller.
//
// The definition of CapacityBuffers need not be in the cluster. It is watched, and the buffers and what
// they refer to are while it is there.
//
// # What is asked
//
// A buffer asks that replicas pods of its template have room, or percentage of the replicas of what
// scalableRef names, rounded up to at least one; the larger one if both are set; as many as limits allow if
// neither is, and never more. A limit that makes it fewer is named in the conditions.
//
// # What it takes
//
// These pods are placed by [demand.Place], by the rules and the choice of a pool that
// hold for pods which wait, on the standby machines that the pools have and then on ones
// that they could launch. The result is a level, not an order: as many good standby
// machines as its pods are on. The pods of all buffers are placed together, so that no two
// buffers count on the same room. Pods that run already do not matter, except where the
// template wants to be near them or away from them.
//
// The package declares its own types with only the fields that it reads and writes. The
// types of the API's module would bring in the test and generator libraries it imports.
package buffers
