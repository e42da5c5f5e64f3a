// Command tidy runs go mod tidy in every module of the workspace. The modules
// require each other and are not published, and go mod tidy ignores go.work: so
// each go.mod gets replace lines for the others while it is tidied, and loses
// them again, also when that fails.
//
// Run it from the root of the repository, or with "make tidy".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
)

const trueup = "github.com/seed-9e1ffd66/trueup"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "work", "edit", "-json").Output()
	if err != nil {
		return fmt.Errorf("go work edit: %w", err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return fmt.Errorf("go work edit: %w", err)
	}
	dirs := make([]string, 0, len(work.Use))
	for _, use := range work.Use {
		dirs = append(dirs, path.Clean(use.DiskPath))
	}
	var failed error
	for _, dir := range dirs {
		fmt.Println("tidy", dir)
		if err := tidy(ctx, root, dir, dirs); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return failed
}

func tidy(ctx context.Context, root, dir string, dirs []string) (err error) {
	add, drop := []string{"mod", "edit"}, []string{"mod", "edit"}
	for _, other := range dirs {
		if other == dir {
			continue
		}
		// With the version, so that tidy writes v0.0.0 into the require line as
		// go.work expects, instead of a made-up one.
		version := path.Join(trueup, other) + "@v0.0.0"
		add = append(add, "-replace="+version+"="+filepath.Join(root, other))
		drop = append(drop, "-dropreplace="+version)
	}
	folder := filepath.Join(root, dir)
	// The root requires none of the others.
	if dir != "." {
		defer func() {
			err = errors.Join(err, goCommand(context.WithoutCancel(ctx), folder, drop...))
		}()
		if err := goCommand(ctx, folder, add...); err != nil {
			return err
		}
	}
	return goCommand(ctx, folder, "mod", "tidy")
}

func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s %s: %w", args[0], args[1], err)
	}
	return nil
}
