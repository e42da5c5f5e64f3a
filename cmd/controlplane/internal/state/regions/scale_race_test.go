//go:build race

package regions_test

// many is the number of rows of a test at scale. The race detector makes a database in Go ten times
// as slow.
const many = 1_000
