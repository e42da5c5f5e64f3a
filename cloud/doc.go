// Package cloud keeps a pool of machines exactly as large as it is wanted: never
// a duplicate, never a leak, and no good machine terminated.
//
// A pool has machines that were booted once, joined a cluster, and were stopped.
// When pods need more machines, these are started: that takes seconds where a new
// machine takes minutes. Machines that run empty are stopped again.
//
//	launch -> warmup -> standby <-> running -> terminating -> standby, or gone
//
// # Parts
//
// A [Provider] is a cloud: eight operations, and batches of them where the cloud
// has those. Package aws, a module of its own, is one, and cloudtest.Run tests
// any. [Pool.Plan] decides what to do next. It is pure: it takes what was
// [Observed] and what pods [Want], and returns a [Plan] that can be printed,
// reviewed, and carried out by an [Executor]. [Executor.Pass] does both, and goes
// around zones without capacity in one pass. [Demand] computes what pods want. The
// cluster is behind two small interfaces, [Nodes] and [Journal].
//
// # Guarantees
//
//   - A launch is written to the [Journal] before the cloud is called, with its
//     idempotency token. After a crash or a lost answer the same token is used
//     again, or the machines are found by the tag of the launch. A launch counts
//     against [Pool].Size for as long as it may bring a machine, whatever a list
//     says.
//   - A machine is gone when two complete lists lack it, Pool.AbsenceAge apart,
//     and the cloud does not know it when asked for it alone.
//   - Without a complete list nothing is launched, stopped or terminated. Where
//     more machines are missing from a list than Pool.Budget allows, the list is
//     not believed; the plan reports it in a [Brake], which clears itself.
//   - Ownership is read again from the cloud before a machine is terminated, and
//     its state: what has changed since the plan is left alone.
//   - A machine is called standby only once the cloud reports it as stopped, and
//     its Node is opened only once the cloud has accepted the start.
//   - A machine is stopped only when no pod is left on it to be evicted. A drain
//     that does not end is given up, and the Node opened again.
//   - Every state has a next step from every state of the cloud: a machine that
//     waits for something waits for no longer than the fields of Pool say.
//   - At rest a pass costs one list, and writes nothing.
//
// Package internal/sim of this repository simulates histories of a pool, with
// every fault above, and cuts the life of a pool at each of its calls.
//
// # What is remembered
//
// The state of a machine is on its Node, and as a tag on the machine. [Memory] is
// what else a plan passes to the next one: since when things are as they are. A
// process may lose it at any time. Timers start anew then, and no machine is lost
// or launched twice.
//
// # Demand
//
// [Demand] places pods on machines the way the Kubernetes scheduler does, by what
// is modelled of it; what is not modelled is reported for each pod, and starts
// nothing. It is pure as well. Package kube below this one reads Pods and Nodes.
package cloud
