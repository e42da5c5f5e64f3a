// Package stream makes each watch RPC of the control plane a statesync.Source:
// a statesync.Replica of it is a copy of the desired state, with a proof of
// completeness.
//
// A key is <k8s_namespace>/<k8s_name>, which is all that a delete message has. A
// value is the apply message as JSON.
//
// # What is checked
//
//   - Versions ascend, and lie above the cursor that was asked for.
//   - Synced states the count and the digest of all messages of the stream: both
//     must match the messages received.
//   - Markers stay in one epoch and never go back.
//   - A stream that is silent for 45 s is dead (without markers: one that brings nothing
//     at all for 90 s), and one that ends without an error is cut: neither is ever the end
//     of a list.
//
// Only then a list is passed on as proven. The first marker carries the epoch, so
// the items before it are passed on with it.
//
// # Servers without markers
//
// A server without the extension sends no markers. After Patience without any, its
// messages are passed on as a list that does not end, and the next stream begins
// after the greatest version that was received. A Replica of it is never complete.
// A server that has sent one marker never counts as one without.
package stream
