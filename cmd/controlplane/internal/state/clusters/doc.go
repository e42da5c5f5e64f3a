// Package clusters serves the Starbase API to clusters: a [Store] holds the
// desired state of each cluster, and a [Server] lets administrators change it
// and agents fetch it. The bodies on the wire are the types of package starbase.
//
// # Generations
//
// Every cluster has a generation. A change of anything its agent is served
// raises the generation by one, in the same transaction; a request without effect
// does not raise it. Generations are therefore gapless, and two
// bodies with the same epoch and generation are the same body. The version of
// a body, and its ETag, is "<epoch>-<generation>.<nonce>". The nonce is new with each
// generation: after an older copy of the database was put back, a generation that is
// given again has another version, and no agent gets 304 for content it never had.
//
// An agent reports the deletions that it holds, under a digest. Approving that digest is
// a change like any other: it raises the generation, so that the agent sees a new ETag,
// fetches the body, and finds approved_deletions in it. Other changes leave the approval
// as it is: the digest names objects by their UIDs, so it never fits another set.
//
// An agent may keep a stream open that names the version at once when it changes, as package
// statesync serves it: the item of the scope desired-state below the path of the cluster. The body is
// pulled all the same. So a stream holds no secret and costs no memory for a body, agents refuse or take a state
// in one way, and a control plane that restarts sends none of its streams a body. The version is read
// from the row of the cluster: a change is streamed whatever replica has made it, also an older one. One
// query every 250 ms serves all streams of a process, and a change by its own administration is
// streamed at once. A stream ends with its token, and counts as a contact every 30 seconds.
//
// An epoch is one unbroken history of generations. After a database was
// restored from a backup an administrator starts a new one for each cluster;
// agents refuse to go back inside an epoch.
//
// # Var groups
//
// A var group has variables that several services of a project share. All its values are
// encrypted in the database under the first key of [Store.Keys]; [Store.Rekey] brings the
// others over to it. Secret values are sent to agents alone. A cluster with a value
// that cannot be decrypted is answered with an error, since a state without the group would
// have its agent remove it.
//
// # Tombstones
//
// A deleted service or project stays in the database and is served with
// deleted set, because an agent treats a tombstone as an order and mere
// absence as a doubt. A PUT revives it. Of a service only the identity stays, and that
// is dropped once a complete report of the agent on that generation or a newer one
// does not mention it, 7 days after the deletion at the earliest. A project is dropped by
// the same rule, once none of its services is kept: its id and its namespace are free
// then.
//
// It stands as Deleted once the agent has reported on the generation that
// deleted it, or on a newer one, and no such report mentions it. That the agent
// has fetched that generation is no proof: the deletion may have failed, or be
// held. An agent without services therefore reports an empty list, and the newest
// generation reported on is stored for each cluster, apart from the reports of
// services. Until then a deleted service stands as Pending, or as reported, such as
// Failed with the class DeletionHeld. A report with complete set voids the earlier
// reports of services that it does not list.
//
// # What fails for a cluster
//
// A report may also say why the configuration of the cluster is not in effect, or what the
// agent cannot see, write down, accept or delete: cluster_error_class and cluster_message, such
// as GatewayMissing. The cluster shows the ones of the newest report as reported_error_class and
// reported_message. A report with generation 0 is of an agent that has accepted no state since
// its start: it says why, and nothing else. The region of a report is compared with the one of
// the cluster: what differs is logged.
//
// # Capacity
//
// POST /api/v1/clusters/{cluster_id}/capacity keeps how many pods a cluster has
// and how many it is meant for. Reports are kept for 48 hours, at most
// [MaxCapacityPoints] a cluster.
//
// # Snapshots
//
// POST /api/v1/clusters/{cluster_id}/snapshots stores billing records, each snapshot_id
// once, in one transaction with its answer: how many were accepted, how many were there
// before, and which are rejected with the reason. A batch in which no record is right is
// refused with 400, one of more than 5,000 records or 8 MiB with 413. A record with the
// customer_id of old, of another cluster's project, of a time more than 5 minutes ahead or 48
// hours ago is not right. Package usage sums what is stored, and removes it once it is old,
// also when its cluster is removed before.
//
// # Administration
//
// Every object that can be put below /api/v1/admin/ can be read: at its path, and all of
// a kind at the path above. A list has the parameters limit, 1 to 1,000, and after; next in
// its body is the value of after for the part that follows, left out in the last one.
// Tokens and secret values are never answered. Each change has an entry in the audit, see
// package audit. A cluster with projects, or with an agent that is alive, is not removed;
// abandon=true removes it with its projects, if no agent is alive.
//
// Each answer has the id of its request in the header X-Request-Id, see package requestid.
//
// # Credentials
//
// The token (package tokens) decides the cluster; a request whose path names another
// cluster is refused.
package clusters
