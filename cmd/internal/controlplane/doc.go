// Package controlplane is the Starbase half of the control plane: a [Store]
// that holds what every cluster shall look like, and a [Server] that lets
// administrators change it and agents fetch it.
//
// # Generations
//
// Every cluster has a generation. A change of anything its agent is served
// raises the generation by one, in the same transaction; a request that
// changes nothing raises nothing. Generations are therefore gapless, and two
// bodies with the same epoch and generation are the same body. The version of
// a body, and its ETag, is "<epoch>-<generation>".
//
// Permission for a mass deletion belongs to one generation. Granting it is a
// change like any other: it raises the generation and sets allow_mass_delete
// to the raised value. So the agent sees a new ETag, fetches the body, and
// finds in it allow_mass_delete equal to generation. The next change raises
// the generation again, and with that the permission has lapsed; it is then
// no longer served.
//
// An epoch is one unbroken history of generations. After a database was
// restored from a backup an administrator starts a new one for each cluster;
// agents refuse to go back inside an epoch.
//
// # Tombstones
//
// A deleted service or project stays in the database and is served with
// deleted set, because an agent treats a tombstone as an order and mere
// absence as a doubt. Putting it again revives it.
//
// # Credentials
//
// An agent's token is 32 random bytes, shown once. The store keeps its plain
// SHA-256: the token has so much entropy that nothing can be guessed from the
// hash, and a slow hash would only slow each request down. The token decides
// the cluster; a request whose path names another cluster is refused.
package controlplane
