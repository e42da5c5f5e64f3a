// Package versions reads resourceVersions of Kubernetes.
package versions

import "strconv"

// Parse reads a resourceVersion. Kubernetes promises that the versions of one resource are
// growing decimal numbers. Any other gives 0, and then the state that the server sent last
// counts.
func Parse(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
