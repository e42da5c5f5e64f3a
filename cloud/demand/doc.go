// Package demand computes which machines pods need: what the Kubernetes scheduler would do with
// machines that are not there yet.
//
// [Place] places the pods that the scheduler could not place on machines that are starting, that are on
// standby, or that could be launched, by the scheduler's rules as far as they are modelled. A pod
// with a rule that is not modelled is reported, and starts no machine. The result names what each
// pool is to start and launch ([PoolDemand.Want] is what [cloud.Pool.Plan] takes), where each pod will be,
// and for each pod that stays why each pool is unfit.
//
// [Place] is pure: equal input gives an equal result. A [Reservation] keeps a started machine for its
// pods until the scheduler has bound them. Package cloud/kube reads Pods and Nodes.
package demand
