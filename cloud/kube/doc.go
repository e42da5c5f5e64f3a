// Package kube reads Pods, Nodes and DaemonSets of Kubernetes as the values that
// [cloud.Demand] decides on.
//
//   - [Pod] takes over every rule by which kube-scheduler v1.35 to v1.37 with its
//     default plugins refuses a node, and computes the requests as the scheduler
//     does: init containers, sidecars, overhead and pod-level requests included.
//     What has no counterpart in [cloud.Pod] becomes a line of its Unmodelled.
//   - [Node] takes over a Node with the pods on it.
//   - [Daemons] are the pods of DaemonSets that a new machine will run.
//   - [Unschedulable] are the pods to ask for.
//
// A conversion keeps references to strings of its argument, and to none of its
// maps or slices. It costs some microseconds: a caller with an informer converts an object
// when it changes, not in each pass.
//
// Preferred rules are left out, since they never keep a pod off a node. So are
// the default constraints of a scheduler that is configured to have required
// ones, and what a scheduler with another name does differently.
package kube
