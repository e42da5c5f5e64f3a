package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// held has a process hold all objects and reads how much it needs for that.
func (b *bench) held(ctx context.Context, way, address string) error {
	if err := b.childHolds(ctx, way, way+".", address, b.watched); err != nil {
		return err
	}
	if way != "trueup" {
		b.book.Ratio(way+"_takes.memory_ratio", way+".resident_bytes_per_object", "trueup.resident_bytes_per_object")
	}
	return nil
}

// childHolds starts the process, and adds its figures with a prefix.
func (b *bench) childHolds(ctx context.Context, way, prefix, address string, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return b.child(ctx, prefix, self, "-hold", way, "-address", address, "-watched", strconv.Itoa(n))
}

// measureWrangler has the program in the folder wrangler do its part, against the
// same server.
func (b *bench) measureWrangler(ctx context.Context) error {
	if b.wrangler == "" {
		return nil
	}
	err := b.child(ctx, "", b.wrangler, "-kubeconfig", b.cluster.Kubeconfig,
		"-objects", strconv.Itoa(b.peers), "-created", strconv.Itoa(b.created), "-rounds", strconv.Itoa(b.rounds))
	for _, peer := range []string{"wrangler_canonical", "wrangler_0.1"} {
		b.book.Ratio(peer+"_takes.sweep_ratio", peer+".sweep_us_per_object", "trueup.sweep_us_per_object")
	}
	b.book.Ratio("of_wrangler_0.1.create_rate_ratio", "trueup.create_rate", "wrangler_0.1.create_rate")
	return err
}

// child runs a program and takes over the figures that it prints, with a prefix.
func (b *bench) child(ctx context.Context, prefix, name string, args ...string) error {
	return b.childNamed(ctx, func(figure string) string { return prefix + figure }, name, args...)
}

// childNamed is child with names of its own for the figures.
func (b *bench) childNamed(ctx context.Context, named func(string) string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		if f, ok := benchfigures.Parse(lines.Text()); ok {
			b.book.Add(named(f.Name), f.Value, f.Unit)
		}
	}
	return nil
}
