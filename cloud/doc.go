// Package cloud keeps a pool of machines at its desired size: it never duplicates or
// leaks a machine, and never terminates a healthy one.
//
// The machines of a pool were booted once, joined a cluster, and were stopped. When
// pods need more machines, these are started, which takes seconds instead of the
// minutes of a new machine. Empty machines are stopped again.
//
//	launch -> warmup -> standby <-> running -> terminating -> standby, or gone
//
// # Parts
//
// A [Provider] is a cloud: eight operations, with batches where the cloud has them.
// Package aws, a module of its own, is one, and package local another, whose machines are
// processes; cloudtest.Run tests any. [Pool.Plan]
// decides what to do next. It is pure: it takes the [Observed] state and what pods
// [Want], and returns a [Plan] that can be printed, reviewed, and carried out by an
// [Executor]. [Executor.Pass] does both, and avoids zones without capacity within one
// pass. Package [demand] computes what pods want. The cluster is behind two small interfaces,
// [Nodes] and [Journal].
//
// # Guarantees
//
//   - A launch is written to the [Journal] before the cloud is called, with its
//     idempotency token. After a crash or a lost answer the same token is used
//     again, or the machines are found by the tag of the launch. A launch counts
//     against [Pool].Size while it may still create a machine, whatever a list shows.
//   - A machine counts as deleted when two complete lists, a minute apart, lack
//     it, and the cloud does not know its id.
//   - Without a complete list nothing is launched, stopped or terminated. If more
//     machines are missing from a list than Pool.Budget allows, the list is not
//     trusted; the plan reports a [Hold], which clears itself. Machines that the pool
//     itself has terminated do not count: a cloud may forget them at once.
//   - Before a machine is terminated, its ownership and state are read again from the
//     cloud: a machine that has changed since the plan is left alone.
//   - A machine becomes standby only once the cloud reports it as stopped, and
//     its Node is opened only once the cloud has accepted the start.
//   - A machine is stopped only when no pod on it must be evicted. A drain
//     that does not end is given up, and the Node opened again.
//   - A good machine with pods is drained only when it is over its runtime or its pods fit on other
//     Nodes, and the cluster allows it; at most Pool.Disruptions at a time.
//   - Every state has a next step for every state of the cloud: the fields of Pool
//     bound every wait.
//   - At rest a pass costs one list and no write.
//
// Package internal/sim of this repository simulates histories of a pool, with
// every fault above, and cuts the life of a pool at each of its calls.
//
// # Memory
//
// The state of a machine is on its Node, and as a tag on the machine. [Memory] is what
// a plan passes to the next one: when states began. A process may lose it at any time.
// Then timers restart, and no machine is lost or launched twice.
//
// [demand]: https://pkg.go.dev/github.com/seed-9e1ffd66/trueup/cloud/demand
package cloud
