// Package statesync carries desired state from a change log to its readers
// without losing, reordering or inventing anything.
package statesync
