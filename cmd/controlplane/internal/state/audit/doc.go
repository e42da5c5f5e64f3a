// Package audit keeps who changed what, and when.
//
// [Record] writes an [Entry] in the transaction of the change, so that there is an entry
// for each change that was committed and for no other. A request that changes nothing has
// none: a refused one, and one that the database already matched. Logins, reads of possibly
// secret values, and refused credentials have entries, too; see [Note].
//
// An actor is admin/ and the name or the fingerprint of the token (tokens.Fingerprint), oidc/ and
// the name of a person of the issuer, cluster/ or region/ and the id of the agent, [SharedToken]
// for an agent with the token of all regions, command/ and the name of a command of the program,
// [Stranger], or [ControlPlane] for what the program does by itself. Reports of agents do not
// change the desired state and are not recorded.
//
// An entry never has the values that were put: they may be secret. In an export, an entry
// that ends the token of an agent has a mark of it, see [Exported].
//
// # Logs and retention
//
// Entries are in four logs, see [Logs]. Of each log the newest [MaxEntries] are kept, for
// [Retention]; entries of agents and of strangers for [OutsideRetention] at most. So an agent
// or a stranger can never displace the entries of administrators. Package guard bounds the
// entries of strangers. The entries of one agent are bounded because a repetition within a
// minute has none. [Log.Start] removes the other entries every few minutes.
//
// An administrator of the database can change all of it: [Export] writes each entry to
// another place as well.
package audit
