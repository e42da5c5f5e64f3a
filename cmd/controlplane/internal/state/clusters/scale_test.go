//go:build !race

package clusters_test

import "github.com/seed-9e1ffd66/trueup/cmd/api/starbase"

// manySnapshots is the size of a large batch.
const manySnapshots = starbase.MaxSnapshots
