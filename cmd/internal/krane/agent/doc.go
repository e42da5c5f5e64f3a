// Package agent makes one cluster look as the control plane wants it, and
// reports what runs there.
//
// Three replicas (package statesync) follow the streams of package stream. Each
// item is decoded, decrypted, rendered and applied by one worker at a time; what
// fails is retried by itself, and parked after ten failures until the next list.
//
// # What is deleted, and when
//
//   - What a delete message names: its objects, if they carry our labels and our
//     fields, with their UID as a precondition.
//   - What is absent from two proven lists that are far enough apart: as long as
//     all three streams are complete, the list is not empty, and no more than the
//     limit goes within five minutes.
//   - A namespace that we made, that has been empty for ten minutes.
//
// NotFound, an unknown region, a refused credential, a cut or empty list, and
// anything else that is no proof, deletes nothing.
//
// # What keeps it so
//
// A change of an owned field by somebody else wakes the worker of its object at
// once (apply.Live), and every minute each owned workload is asked for by a point
// query and looked at. At rest neither sends a write.
//
// # When something is down
//
// While the API server is down nothing is acknowledged, and what is not seen is
// not taken for gone; while the control plane is, what it last said holds. Where
// it refuses the region as such, deletions_held says so until it does not. Two
// agents of a region do the same work twice, and neither undoes the other's.
//
// # Reports
//
// Each deployment is reported when what runs of it has changed since the last
// report that was accepted, and each sentinel likewise. That a deployment is gone
// is reported until it is acknowledged, and again after a restart, for every
// delete message of the first list. Everything is reported anew after a silence,
// and to a database that is another.
package agent
