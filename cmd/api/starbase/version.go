package starbase

// The version of a desired state is streamed with package statesync, below
// /api/v1/clusters/{cluster_id}, where the scope has one item. Its value is the version as a JSON string.
const (
	// VersionScope is the scope.
	VersionScope = "desired-state"
	// VersionCollection is the collection of the item. Its ID is the cluster.
	VersionCollection = "versions"
)
