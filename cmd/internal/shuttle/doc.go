// Package shuttle is the cluster agent: it pulls the wanted state of one
// cluster from Starbase and makes the cluster match it.
//
// The way of the data is short. A puller asks Starbase for the desired state on
// its ticker and refuses what is not certain to be whole. Render turns an
// accepted state into Kubernetes objects. A converger hands them to package
// apply on its own ticker, at once after each answer of Starbase, and at once
// when somebody else changed one of them. What happened to each service goes
// back to Starbase.
//
// While Starbase does not answer, the last accepted state keeps being repaired
// and nothing is deleted. After a restart during an outage nothing is changed.
package shuttle
