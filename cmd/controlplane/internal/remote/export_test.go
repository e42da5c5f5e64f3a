package remote

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Watch is the loop of the command of that name.
func Watch(ctx context.Context, plural string, every time.Duration, out, errs io.Writer,
	list func(context.Context) ([]json.RawMessage, error),
) error {
	k, err := find(plural, isListed)
	if err != nil {
		return err
	}
	w := watch{kind: k, list: list, out: out, errs: errs}
	return w.run(ctx, every)
}

// PutKinds are the kinds that put takes.
func PutKinds() []string { return names(isPut) }

// Printed are the members that put leaves out, by path.
func Printed() map[string][]string {
	all := map[string][]string{}
	for _, k := range kinds() {
		if isPut(k) {
			all[k.path] = k.printed
		}
	}
	return all
}
