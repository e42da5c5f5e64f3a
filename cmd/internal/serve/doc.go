// Package serve is what the programs under cmd share: an HTTP listener with
// health, readiness and metrics, the logger, and the version.
package serve
