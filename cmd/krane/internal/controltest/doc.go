// Package controltest is a control plane for tests of agents: a ClusterService
// on a statesync.Memory, with markers, whose answers can be made wrong.
package controltest
