// Package external is for operators that own things outside of the cluster, such as DNS records,
// repositories or accounts. The things of an object are parts in an order ([Part]), and a [Pass]
// makes them and takes them down:
//
//   - [Pass.Plan] records everything that is about to be made in the status of the object, before
//     any of it is made. After a crash at any point the deletion knows where to look.
//   - [Pass.Make] makes the parts in their order. A part that fails is tried three times more, and
//     holds up only the parts that need it. A part that was found correct is looked at again after
//     [Checks.Interval], since no event reports a change outside.
//   - [Pass.Prune] removes what is no longer wanted, once it is free.
//   - [Pass.Teardown] removes everything that is recorded, in the reverse order. It is for
//     [kube.Finalizer.Finalize]: the finalizer stays until all is gone.
//
// A [Mark] in each thing says which object it was made for. What has the name of a wanted thing
// and the mark of another, or none, is refused, and never deleted. Make and Delete of the part check
// it, in one step with the change where the service has transactions or preconditions.
//
// A [Gate] bounds the passes that use one service at a time: one that hangs leaves workers for
// objects that do not use it. [CauseOf] says why a part is not as it should be in the vocabulary
// of package operator, for a condition.
//
// Conditions of the parts, their objects in the cluster, Secrets with their logins, and the pods that
// still use them stay with the operator: in the application operator their order is that of its workload.
// The calls to the services, with their reasons and the change of a mark to retained, stay there too,
// since only they can check a mark in one step with a write.
//
// [kube.Finalizer.Finalize]: https://pkg.go.dev/github.com/seed-9e1ffd66/trueup/reconcile/kube#Finalizer.Finalize
package external
