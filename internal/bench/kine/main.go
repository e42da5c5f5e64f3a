// Command kine measures how long a change takes from its writer to a reader, and
// how long one writer that does not commit holds up all others: package sqlstore
// beside kine and beside the poll of an ordinary table, each in a database of its
// own of one PostgreSQL. It prints one line for each figure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

const (
	writers = 16
	think   = 10 * time.Millisecond
	// stalled is how long one writer has something written and not committed.
	stalled = 4 * time.Second
)

// subject is one of those that are compared, in a database of its own.
type subject interface {
	// start prepares the database and runs what must run until ctx ends.
	start(ctx context.Context, url string) error
	// write commits the value under the key.
	write(ctx context.Context, key, value string) error
	// follow calls got with every value until ctx ends.
	follow(ctx context.Context, got func(value string)) error
	// stall writes, and commits only when release is called.
	stall(ctx context.Context, key, value string) (release func() error, err error)
}

func main() {
	fsync := flag.Bool("fsync", true, "commits wait for the disk")
	most := flag.Duration("for", 8*time.Second, "how long the writers write in each part; more than 6s")
	flag.Parse()
	logrus.SetOutput(io.Discard)
	ctx, stop := benchfigures.Interrupted()
	err := measure(ctx, pgtest.Options{Fsync: *fsync}, *most)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kine:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, options pgtest.Options, most time.Duration) error {
	server, err := pgtest.Run(ctx, options)
	if err != nil {
		return err
	}
	defer server.Stop()
	book := &benchfigures.Book{Out: os.Stdout}
	for _, of := range []struct {
		name string
		subject
	}{{"trueup", &sequenced{}}, {"kine", &etcd{}}, {"poll", &polled{}}} {
		for _, part := range parts() {
			name := of.name + "_" + part
			if err := server.SQL(ctx, "postgres", "CREATE DATABASE "+name+" OWNER trueup"); err != nil {
				return err
			}
			r, err := run(ctx, server.URL(name), of.subject, part, most)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			name = "S3_" + name
			book.Add(name+"_p50", benchfigures.Percentile(r.millis, 0.5), "ms")
			book.Add(name+"_p99", benchfigures.Percentile(r.millis, 0.99), "ms")
			book.Add(name+"_max", benchfigures.Percentile(r.millis, 1), "ms")
			book.Add(name+"_rate", float64(len(r.millis))/most.Seconds(), "1/s")
			book.Add(name+"_skipped", float64(r.skipped), "commits")
		}
	}
	for _, peer := range []string{"kine", "poll"} {
		for _, figure := range []string{"quiet_p50", "quiet_p99", "stalled_p99"} {
			book.Ratio("S3_"+figure+"_against_"+peer, "S3_trueup_"+figure, "S3_"+peer+"_"+figure)
		}
	}
	return complete(book)
}

// complete returns an error if our reader has not seen each commit: how fast the others came says nothing then.
func complete(book *benchfigures.Book) error {
	var marks []benchfigures.Mark
	for _, part := range parts() {
		marks = append(marks, benchfigures.Mark{Figure: "S3_trueup_" + part + "_skipped", Hard: true})
	}
	_, missed := book.Table(marks)
	return missed
}

// parts are what each is measured in: without and with a writer that stalls.
func parts() []string { return []string{"quiet", "stalled"} }

// result is what the reader of one part saw.
type result struct {
	millis []float64
	// skipped is what was committed and never came.
	skipped int
}

func run(ctx context.Context, url string, s subject, part string, most time.Duration) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	if err := s.start(ctx, url); err != nil {
		return result{}, err
	}
	seen := &tally{missing: map[string]bool{}, came: map[string]bool{}}
	failed := make(chan error, writers+2)
	following.Go(func() {
		if err := s.follow(ctx, seen.got); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	var writing sync.WaitGroup
	if part == "stalled" {
		writing.Go(func() {
			if err := stall(ctx, s, seen); err != nil {
				failed <- fmt.Errorf("the writer that stalls: %w", err)
			}
		})
	}
	began := time.Now()
	for w := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for n := 0; time.Since(began) < most && ctx.Err() == nil; n++ {
				pause(ctx, think/2+time.Duration(r.Int64N(int64(think))))
				value := strconv.FormatInt(time.Now().UnixNano(), 10) + "-" + strconv.Itoa(w)
				if err := s.write(ctx, fmt.Sprintf("w%d-%d", w, n), value); err != nil {
					failed <- err
					return
				}
				seen.wrote(value)
			}
		})
	}
	writing.Wait()
	// The slowest here looks once a second.
	for deadline := time.Now().Add(3 * time.Second); seen.open() > 0 && time.Now().Before(deadline); {
		pause(ctx, 50*time.Millisecond)
	}
	select {
	case err := <-failed:
		return result{}, err
	default:
	}
	return result{seen.millis, seen.open()}, nil
}

// stall writes a value in the midst of the others and commits it much later.
func stall(ctx context.Context, s subject, seen *tally) error {
	pause(ctx, time.Second)
	value := "stalled"
	release, err := s.stall(ctx, "stalled", value)
	if err != nil {
		return err
	}
	pause(ctx, stalled)
	if err := release(); err != nil {
		return err
	}
	seen.wrote(value)
	return nil
}

// tally has what was written and what came.
type tally struct {
	mu            sync.Mutex
	millis        []float64
	missing, came map[string]bool
}

func (t *tally) wrote(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.came[value] {
		t.missing[value] = true
	}
}

func (t *tally) got(value string) {
	now := time.Now().UnixNano()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.came[value] = true
	delete(t.missing, value)
	var nanos, writer int64
	if _, err := fmt.Sscanf(value, "%d-%d", &nanos, &writer); err == nil {
		t.millis = append(t.millis, float64(now-nanos)/1e6)
	}
}

func (t *tally) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.missing)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// rolledBack joins the error of a transaction and that of its rollback.
func rolledBack(err, rollback error) error { return errors.Join(err, rollback) }
