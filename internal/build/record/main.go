// Command record plays a session with the command trueup on a real Kubernetes, and writes
// what the terminal shows to docs/trueup.cast (asciinema v2) and docs/trueup.svg.
//
//	go run ./internal/build/record [-draw]
//
// With -draw it makes the picture of the recording that is there. Run it from the root of
// the repository, or with "make record". The terminal is that of script, of util-linux.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const castFile, pictureFile = "docs/trueup.cast", "docs/trueup.svg"

// shop is the folder that the session is about.
//
//go:embed shop
var shop embed.FS

func main() {
	only := flag.Bool("draw", false, "make the picture of the recording that is there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only bool) error {
	if !only {
		if err := record(ctx); err != nil {
			return err
		}
	}
	cast, err := os.ReadFile(castFile)
	if err != nil {
		return err
	}
	picture, err := draw(cast)
	if err != nil {
		return fmt.Errorf("%s: %w", castFile, err)
	}
	return os.WriteFile(pictureFile, picture, 0o644)
}

// record plays the session in a temporary folder.
func record(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	if err := os.CopyFS(dir, shop); err != nil {
		return err
	}
	bin := filepath.Join(dir, "bin")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./cmd/trueup").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	cluster, err := kubetest.Run(ctx, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := os.Symlink(cluster.KubectlPath(), filepath.Join(bin, "kubectl")); err != nil {
		return err
	}
	s := session{dir: dir, env: []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "KUBECONFIG=" + cluster.Kubeconfig,
		"SHELL=/bin/sh", "TERM=xterm-256color", "LANG=C.UTF-8",
	}}
	if err := s.play(ctx); err != nil {
		return err
	}
	return os.WriteFile(castFile, s.cast.Bytes(), 0o644)
}
