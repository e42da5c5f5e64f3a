//go:build !race

package cluster_test

// many is the number of rows of a test at scale.
const many = 10_000
