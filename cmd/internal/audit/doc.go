// Package audit keeps who changed what, and when.
//
// [Record] writes an [Entry] in the transaction of the change, so that there is an entry
// for each change that was committed and for no other. What has changed nothing has none:
// a refused request, and one that the database already matched.
//
// An actor is admin/ and the fingerprint of the token (tokens.Fingerprint), cluster/ or
// region/ and the id of the agent, [SharedToken] for an agent with the token of all
// regions, command/ and the name of a command of the program, or [ControlPlane] for what
// the program does by itself. What agents report of what runs is no change of what is
// wanted, and is not recorded.
//
// An entry has no value of what was put: it may be a secret.
//
// # Retention
//
// Entries are kept for [Retention], and at most [MaxEntries], the newest. [Log.Start]
// removes the others every few minutes.
package audit
