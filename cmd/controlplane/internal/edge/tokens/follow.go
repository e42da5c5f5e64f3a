package tokens

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// reread is the time between two looks at a file.
const reread = 2 * time.Second

// eachLine calls parse for each line of a file, with its number. It leaves out empty lines and
// comments, and ends with the first error.
func eachLine(path string, parse func(n int, line string) error) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const byteOrderMark = "\uFEFF" // some editors begin a file with it
	for n, line := range strings.Split(strings.TrimPrefix(string(content), byteOrderMark), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := parse(n+1, line); err != nil {
			return err
		}
	}
	return nil
}

// follow reads a file again and again until ctx ends, and then returns nil. It logs each change
// of what was read, by its labels, and once why a changed file is not used.
func follow[T any](ctx context.Context, what string, logger *slog.Logger, read func(context.Context) error,
	current func() []T, labels func([]T) []string,
) error {
	said := ""
	loop := reconcile.Loop{
		Name:     what,
		Interval: reread,
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
			before := current()
			err := read(ctx)
			switch {
			case ctx.Err() != nil:
				return reconcile.Result{}, nil //nolint:nilerr // what fails because it ends is no failure
			case err != nil:
				if err.Error() != said {
					logger.ErrorContext(ctx, what+" not reloaded", slog.Any("error", err)) //nolint:sloglint // of constants
				}
				said = err.Error()
				return reconcile.Result{}, nil
			}
			said = ""
			if now := current(); !reflect.DeepEqual(before, now) {
				//nolint:sloglint // as above
				logger.InfoContext(ctx, what+" reloaded", slog.Any("before", labels(before)), slog.Any("now", labels(now)))
			}
			return reconcile.Result{}, nil
		}),
	}
	return loop.Start(ctx)
}
