// Package cluster serves ctrl.v1.ClusterService: what the streaming agents of
// regions are to run, and what they say of it.
//
// The wanted state of deployments, sentinels and network policies is kept in the
// tables of package db. A change of it queues, in the same transaction, an item
// of the change log of its region, and the streams tell that log: nothing is
// numbered before it is committed.
//
// A region is known by its name on the wire and by its id in the database. The
// log remembers which id it was made for, so that a region which was lost and
// made anew under its old name is refused as unknown, and never passes for one
// that wants nothing.
//
// The tables are the truth. A [Keeper] finds rows that somebody changed without
// the log and tells them, and purges what has been archived for a week, once
// every agent that lives has said that it is past it: heartbeats carry how far.
package cluster
