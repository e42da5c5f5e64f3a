// Package kube converts Pods, Nodes and DaemonSets of Kubernetes to the input of
// [demand.Place].
//
//   - [Pod] converts every rule by which kube-scheduler v1.35 to v1.37 with its default
//     plugins refuses a node, and computes the requests as the scheduler does: init
//     containers, sidecars, overhead and pod-level requests included. A rule without a
//     counterpart in [demand.Pod] becomes a line of its Unmodelled.
//   - [Node] converts a Node with its pods.
//   - [Daemons] returns the pods of DaemonSets that a new machine will run.
//   - [Unschedulable] reports whether a pod belongs to the demand.
//
// A result shares strings with its argument, but no maps or slices. It costs some
// microseconds: a caller with an informer converts an object when it changes, not in
// each pass.
//
// Preferred rules are left out, because they never keep a pod off a node. So are
// required default constraints of a scheduler's configuration, and the rules of a
// scheduler with another name.
package kube
