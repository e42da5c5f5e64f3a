// Package serve is the HTTP listener of the programs and of reconcile/operator, with health,
// readiness and metrics.
package serve
