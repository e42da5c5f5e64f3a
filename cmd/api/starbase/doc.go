// Package starbase is the wire contract of the Starbase API: the JSON bodies
// that the control plane and the cluster agents exchange, and the rules by
// which a body is accepted.
//
// The control plane fills a [DesiredState], seals it with
// [DesiredState.Seal] and sends it. The agent reads it back with [Decode].
// What Decode returns without an error is whole: a body that was cut off at
// any byte, that belongs to another cluster, or whose content disagrees with
// its own counts or digest is refused as one piece, with a [RefusedError]
// whose Reason is fit for a metric label. No part of a refused body is
// returned.
//
// # Versions
//
// A body with the member "schema" proves its completeness. A body without it
// is in basic mode ([DesiredState.Basic]): Decode then insists only on valid
// JSON with a version and a list of services, and the reader has to be the
// more careful with absence.
//
// Members that this package does not know are tolerated, at every depth. The
// digest is computed over the JSON as it was sent, so a newer server may add
// members without being refused by an older agent.
//
// # The digest
//
// The digest is "sha256:" and the lower-case hex SHA-256 of the canonical
// JSON of an object with the four members cluster_config, projects, services
// and var_groups, taken from the body. Canonical means: no white space,
// object keys sorted by their bytes, numbers spelled as in the body, strings
// escaped as encoding/json does with HTML escaping off. A list that is absent
// or null counts as [], an absent or null cluster_config as {}.
//
// # Validation
//
// Decode judges the body as a whole; it does not judge its entries.
// [Service.Validate], [Project.Validate] and [ClusterConfig.Validate] do, one
// entry at a time, so that a bad entry can be set aside without its
// neighbours. Both sides use the same rules. A service that appears twice is
// found by [DesiredState.Duplicates].
package starbase
