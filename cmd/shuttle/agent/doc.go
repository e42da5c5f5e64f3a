// Package agent is the cluster agent: it pulls the desired state of one cluster
// from Starbase and makes the cluster match it.
//
// A puller requests the desired state on its ticker and refuses a body that is not
// proven complete. With STARFORM_TRANSPORT=stream it does so once a stream of Starbase names another
// version, and on the ticker while there is no such stream: see streamed. Render turns an accepted state into Kubernetes objects. A
// converger passes them to package apply on its own ticker, at once after each
// answer of Starbase, and at once when another manager has changed one of them. A
// reporter reports the result of each service to Starbase.
//
// A Deployment depends on the NetworkPolicy of its environment and on the objects it reads:
// it is neither created nor changed while one of these cannot be applied. The replicas of
// an autoscaled service belong to the autoscaler, which takes them over with their
// value. A service is Healthy by the pods of the Deployment that was written last. A
// deletion that is held, fails or has no proof is reported for its service. It does not
// keep a report from being complete: a report is complete once all objects are seen.
//
// Each minute, a recorder of package snapshot sends a billing record for each customer
// pod, and a loop the number of pods. Both read a view of the pods that is proven to be
// current by events or bookmarks within two intervals, or send nothing. None of these
// loops waits for another: they share the client of Starbase and no pass.
//
// While Starbase does not answer, the last accepted state is repaired and no object
// is deleted. After a restart during an outage no object is changed.
package agent
