// Command loop keeps one file equal to another until it is stopped: the
// least that reconcile.Loop and reconcile.Group need around them.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func main() {
	from := flag.String("from", "from.txt", "file with the desired content")
	to := flag.String("to", "to.txt", "file that is kept equal to it")
	interval := flag.Duration("interval", time.Second, "time between two looks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newGroup(*from, *to, *interval, os.Stdout).Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// newGroup makes two loops: one that copies, and one that reports the progress.
func newGroup(from, to string, interval time.Duration, out io.Writer) *reconcile.Group {
	passes := make(chan reconcile.Pass, 100)
	mirror := &reconcile.Loop{
		Name:     "mirror",
		Interval: interval,
		Jitter:   0.1,
		Backoff:  reconcile.ThreeRetries(),
		Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
			return reconcile.Result{}, mirror(from, to)
		}),
		OnPass: func(pass reconcile.Pass) {
			select {
			case passes <- pass:
			default: // a hundred passes wait to be read
			}
		},
	}
	reporter := reconcile.StarterFunc(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case pass := <-passes:
				_, _ = fmt.Fprintf(
					out,
					"%s %d (%s): %v\n",
					pass.Name,
					pass.Number,
					pass.Reason,
					pass.Err,
				)
			}
		}
	})
	return &reconcile.Group{Members: []reconcile.Member{{Name: "mirror", Starter: mirror}, {Name: "reporter", Starter: reporter}}}
}

// mirror is one pass: it compares the whole of what should be with the whole of
// what is, and writes only if they differ.
func mirror(from, to string) error {
	want, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(to)
	if err == nil && bytes.Equal(want, have) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := to + ".next"
	if err := os.WriteFile(next, want, 0o600); err != nil {
		return err
	}
	return os.Rename(next, to)
}
