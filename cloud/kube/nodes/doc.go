// Package nodes is the Kubernetes half of a pool of machines: it reads Nodes and pods for
// package cloud, and records on Nodes what a pool uses its machines for.
//
//	watches -> Cluster (one View of each Node, kept by what changes) -> cloud.Pool.Plan
//	cloud.Executor -> Marks (states, drains)  -> Nodes
//	               -> Guard (the last look before a stop)
//	Node           -> Pass  (taints, labels)  -> Nodes
//
// A caller has the watches: it gives what they show to [Cluster.SawNode], [Cluster.SawPod],
// [Cluster.SawDaemonSet] and [Cluster.SawNamespace], and starts passes of the pools that
// changed names. [Marks] is the Nodes of a [cloud.Executor], [Guard.Check] its Check, and
// [Journal] its Journal. Package pools has those passes, and the starts for pods that wait.
//
// A Node says what its machine is used for in labels and annotations below a [Domain]. What
// the Node said of its readiness when the machine was stopped is kept there, too: the same
// again, after the next start, is no news. Clocks of machines are compared with nothing but
// themselves.
//
// What differs from cloud to cloud is a [Platform]: how a providerID is written, and which
// DaemonSet makes the network.
package nodes
