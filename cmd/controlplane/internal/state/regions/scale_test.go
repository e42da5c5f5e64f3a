//go:build !race

package regions_test

// many is the number of rows of a test at scale.
const many = 10_000
