// Package serve is the HTTP listener of the programs under cmd, with health,
// readiness and metrics.
package serve
