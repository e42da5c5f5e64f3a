package aws

import (
	"context"
	"slices"
	"strings"
)

const (
	maxBatch        = 1000 // machines of one call
	maxFilterValues = 200
)

// batch makes calls for many machines at a time, and returns the errors of machines
// that failed, by id.
func batch(ctx context.Context, ids []string, call func(ctx context.Context, ids []string) error) map[string]error {
	failed := map[string]error{}
	for chunk := range slices.Chunk(ids, maxBatch) {
		divide(ctx, chunk, call, failed)
	}
	return failed
}

// divide calls again without the machines that the error names, or for each half if it
// names none, while the error may concern single machines.
func divide(ctx context.Context, ids []string, call func(ctx context.Context, ids []string) error, failed map[string]error) {
	err := call(ctx, ids)
	if err == nil {
		return
	}
	if len(ids) == 1 || !single(err) || ctx.Err() != nil {
		for _, id := range ids {
			failed[id] = err
		}
		return
	}
	guilty := named(err)
	var rest []string
	for _, id := range ids {
		if slices.Contains(guilty, id) {
			failed[id] = err
		} else {
			rest = append(rest, id)
		}
	}
	switch {
	case len(rest) == 0:
	case len(rest) < len(ids):
		divide(ctx, rest, call, failed)
	default:
		divide(ctx, ids[:len(ids)/2], call, failed)
		divide(ctx, ids[len(ids)/2:], call, failed)
	}
}

// escape escapes the wildcards of a filter's value.
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(value)
}
