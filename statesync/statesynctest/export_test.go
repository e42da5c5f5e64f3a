package statesynctest

import (
	"context"
	"fmt"
)

// Check runs one subtest of Run.
func Check(ctx context.Context, name string, s Store) error {
	for _, c := range checks() {
		if c.name == name {
			return c.run(ctx, s)
		}
	}
	return fmt.Errorf("there is no subtest %q", name)
}
