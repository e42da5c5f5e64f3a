//go:build race

package clusters_test

// manySnapshots is the size of a large batch. The race detector makes a database in Go ten
// times as slow.
const manySnapshots = 500
