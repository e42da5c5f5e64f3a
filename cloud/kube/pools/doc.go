// Package pools runs pools of machines on Kubernetes: it starts machines for pods that wait, and does
// the passes that keep a pool at its size. A program adds what its pools are called and made from:
// kinds, classes, user data, a provider.
//
//	pods, Nodes -> nodes.Cluster -> ScaleUp -> starts of standby machines (its own loop, behind no drain)
//	                                   |
//	                                   v launches
//	list of the cloud, Nodes ------> Pass   -> cloud.Executor.Pass
//
// A pass makes a [Pool] and shows it to [ScaleUp], which decides with package demand for all pools at
// once, and keeps a started machine for its pods until the scheduler has bound them. A start that the
// cloud refuses, or that does not end in time, lets its pods look for another machine.
//
// [ScaleUp.Consolidate] says which running machines are not needed, and [Announced] what the cloud
// announces of machines; a pass drains both kinds.
//
// Package buffers keeps standby machines for CapacityBuffers of the pools that [ScaleUp] has.
//
// Package nodes has the parts that read and write Nodes, package cloud the plan.
package pools
