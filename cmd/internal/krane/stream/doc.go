// Package stream makes each watch RPC of the control plane a statesync.Source,
// so that a statesync.Replica can keep a copy of what is wanted and knows when
// that is all there is.
//
// A key is <k8s_namespace>/<k8s_name>, which is all that a delete message says of
// what it deletes. A value is the apply message as JSON.
//
// # What is checked
//
//   - Versions ascend, and lie above the cursor that was asked for.
//   - Synced states the count and the digest of all messages of the stream: both
//     must be those of what came.
//   - Markers stay in one epoch and never go back.
//   - A stream that is silent for 45 s is dead, and one that ends without an error
//     is cut: neither is ever the end of a list.
//
// Only then a list is handed on as proven. The contract tells the epoch of a list
// with the first marker, so the list is handed on from there.
//
// # Servers without markers
//
// A server that knows no markers sends none. After a while without any, its
// messages are handed on as a list that does not end, and the next stream begins
// after the greatest version that was seen. A Replica of it is never complete. A
// server that has once shown a marker is never taken for one without.
package stream
