// Package render turns the messages of the control plane into Kubernetes
// objects. It is pure: the same message in the same [Cell] gives the same
// objects, and whatever is wrong with a message is told with all its fields
// before anything is sent.
//
// # What belongs together
//
// Each object carries app.kubernetes.io/managed-by=krane, the region, and its
// [Component]. The components are disjoint sets, each with an [Owner] and
// [Kinds] of its own, so that each can be complete, applied and pruned by
// itself:
//
//   - namespace: a Namespace, and the Secret to pull images with. Several
//     deployments share them, so they carry no more labels. Apply it with
//     apply.SkipForeign: a namespace that was there before is used, never owned.
//     To find that out costs a refused request after each restart and every few
//     minutes, so leave one that is known to be there out of the set.
//   - account: the default ServiceAccount of a namespace, without a mounted token.
//     Kubernetes makes it as well, whoever is first: apply it with
//     apply.AdoptForeign. Should it be deleted, Kubernetes makes it anew.
//   - deployment: a Secret, a ServiceAccount, a ReplicaSet, and what goes with it.
//   - sentinel: a Deployment, a Service and a PodDisruptionBudget.
//   - policy: a CiliumNetworkPolicy as the control plane sent it.
//
// # Owner references
//
// All objects of a deployment but the ReplicaSet are owned by it, so that they go
// when it is deleted; those of a sentinel by its Deployment. The reference needs
// the UID, which the caller learns from its live view when the owner exists;
// until then the objects are rendered without. The ReplicaSet waits for its Secret
// and ServiceAccount in any case.
//
// # Who scales
//
// A ReplicaSet states no replicas: they are the autoscaler's.
package render
