// Package render turns the messages of the control plane into Kubernetes
// objects. It is pure: the same message in the same [Cell] gives the same
// objects, and the error of a wrong message names all its wrong fields before
// anything is sent.
//
// # What belongs together
//
// Each object carries app.kubernetes.io/managed-by=krane, the region, and its
// [Component]. The components are disjoint sets, each with an [Owner] and
// [Kinds] of its own, so that each can be complete, applied and pruned by
// itself:
//
//   - namespace: a Namespace, which enforces a level of pods, the network policy for its
//     outgoing traffic, and the Secret to pull images with. Several
//     deployments share them, so they carry no more labels. Apply it with
//     apply.SkipForeign: a namespace that was there before is used, never owned.
//     To find that out costs a refused request after each restart and every few
//     minutes, so a namespace that exists is left out of the set.
//   - account: the default ServiceAccount of a namespace of ours, without a mounted token.
//     Kubernetes creates it as well, before or after: apply it with
//     apply.AdoptForeign. If it is deleted, Kubernetes creates it again.
//   - deployment: a Secret, a ServiceAccount, a ReplicaSet, an autoscaler, a
//     network policy and a disruption budget.
//   - sentinel: a Deployment, a Service and a PodDisruptionBudget.
//   - policy: a CiliumNetworkPolicy as the control plane sent it.
//
// # Owner references
//
// The objects of a deployment are owned by its ReplicaSet, and are deleted with it, but for
// the network policy: the garbage collector would delete it before the pods. The objects of
// a sentinel are owned by its Deployment. The reference needs
// the UID, which the caller reads from its live view once the owner exists;
// until then the objects are rendered without. The ReplicaSet waits for its Secret
// and ServiceAccount in any case.
//
// # Isolation
//
// Apply the sets with apply.SetOptions.Gate: a ReplicaSet waits until its network policy is
// in force, and delete a ReplicaSet in the foreground, and its policy after it: pods may run until their
// grace is over. Pods keep the level restricted of the Pod Security Standards. The pods of a
// deployment keep the level that it states, if any, within [Cell.PodSecurity].
//
// # Scaling
//
// A ReplicaSet states no replicas: they are the autoscaler's.
package render
