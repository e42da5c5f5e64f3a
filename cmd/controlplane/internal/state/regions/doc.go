// Package regions serves regions: over ctrl.v1.ClusterService, the desired state
// of each region's streaming agent, and the reports of that agent.
//
// It is named after the service. The clusters that pull over the Starbase API are
// served by package clusters.
//
// The desired state of deployments, sentinels and network policies is kept in the
// tables of package db. A change of it queues, in the same transaction, an item
// of the change log of its region, and the streams carry that log: no change is
// numbered before it is committed.
//
// A region has a name on the wire, unique in its platform, and an id in the database. The
// token of its agent says which of several with one name is meant, or the header
// X-Krane-Platform. The log has the id
// that it was made for. A region that was lost and registered again under its old
// name is refused as unknown; it never passes for a region without resources.
//
// The tables decide. A [Reconciler] finds rows that were changed without the log and
// queues them, and purges rows that no agent needs any more, once every live agent is past
// them: heartbeats carry the agent's position. A resource is kept for a week after it was
// archived, for 30 days after it was stopped.
//
// Messages of a region are kept in memory while it has a stream, and for a minute after
// the last one. [Service.Mount] also serves the log of a region over plain HTTP.
package regions
