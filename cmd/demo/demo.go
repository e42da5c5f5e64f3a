package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// story is what one demo shows.
type story struct {
	use, short string
	// programs are the names of those that the demo runs.
	programs []string
	// kubernetes are the parts of the demo's own cluster.
	kubernetes kubetest.Options
	// limit bounds the stages and the end. Default 3 minutes.
	limit time.Duration
	// stages run in this order. The end follows unless the demo is kept.
	stages, end []stage
	// look returns the commands to look at what is kept.
	look func() []string
}

// stage is one line of the demo. run returns the result that the line ends with.
type stage struct {
	name string
	run  func(context.Context) (string, error)
}

// demo is one run: what was started, and what was measured.
type demo struct {
	kube

	display   *display
	keep      bool
	dir       string // of logs, keys and programs
	processes *process.Group
	running   []*process.Process // in the order of their starts
	ends      []func(context.Context) error
	figures   []string
}

func newDemo() *demo { return &demo{display: newDisplay(os.Stdout)} }

// command returns the command that tells the story.
func (d *demo) command(s story) *cobra.Command {
	c := &cobra.Command{
		Use: s.use, Short: s.short, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return d.run(c.Context(), s) },
	}
	c.Flags().BoolVar(&d.keep, "keep", false, "leave everything running at the end, until interrupted")
	return c
}

func (d *demo) run(ctx context.Context, s story) (err error) {
	if d.dir, err = os.MkdirTemp("", "trueup-demo-"); err != nil {
		return err
	}
	d.processes = process.NewGroup(d.dir)
	defer func() {
		switch {
		case ctx.Err() != nil && err != nil:
			err = context.Cause(ctx)
		case err != nil:
			for _, p := range d.running {
				err = fmt.Errorf("%w\nlast lines of %s:\n%s", err, p.Name, p.Tail())
			}
		}
		err = errors.Join(err, d.stop(ctx))
	}()
	// The first start builds Kubernetes, which takes minutes.
	if err := d.show(ctx, stage{"Programs", func(ctx context.Context) (string, error) {
		return strings.Join(s.programs, ", ") + " compiled", programs.Build(ctx, d.dir, s.programs...)
	}}, stage{"Kubernetes", func(ctx context.Context) (string, error) {
		return d.startKubernetes(ctx, s.kubernetes)
	}}); err != nil {
		return err
	}
	limit := max(s.limit, 3*time.Minute)
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	start := time.Now()
	if err := d.show(bounded, s.stages...); err != nil {
		return err
	}
	if !d.keep {
		if err := d.show(bounded, s.end...); err != nil {
			return err
		}
	}
	d.display.print(fmt.Sprintf("\nall in %.1f s\n", time.Since(start).Seconds()))
	d.display.print(d.figures...)
	if d.keep {
		d.display.print("", "Everything keeps running until you press Ctrl-C. Look at it:")
		d.display.print(s.look()...)
		for _, p := range d.running {
			d.display.print("tail -f " + p.Log)
		}
		<-ctx.Done()
	}
	return nil
}

// show runs stages until one fails.
func (d *demo) show(ctx context.Context, stages ...stage) error {
	for _, s := range stages {
		d.display.step(s.name)
		result, err := s.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.display.done(result)
	}
	return nil
}

// stop ends everything that was started, the last first.
func (d *demo) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, p := range slices.Backward(d.running) {
		if err := p.Stop(20 * time.Second); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	d.processes.Close()
	for _, end := range slices.Backward(d.ends) {
		errs = append(errs, end(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// atEnd has something ended after the programs, before what was started earlier.
func (d *demo) atEnd(end func()) {
	d.ends = append(d.ends, func(context.Context) error {
		end()
		return nil
	})
}

// start runs one of the programs until it listens, and returns its address. Of several
// addresses it returns the one for this purpose.
func (d *demo) start(ctx context.Context, name, purpose string, env []string, args ...string) (*process.Process, string, error) {
	p, err := d.processes.Run(name, filepath.Join(d.dir, name), env, args...)
	if err != nil {
		return nil, "", err
	}
	d.running = append(d.running, p)
	address, err := listening(ctx, p, purpose)
	return p, address, err
}

// file writes a file that only this user reads, and returns its path.
func (d *demo) file(name, content string) (string, error) {
	path := filepath.Join(d.dir, name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// note keeps a figure, which is printed at the end.
func (d *demo) note(name string, value float64, unit string) {
	d.figures = append(d.figures, fmt.Sprintf("figure %s %.4g %s", name, value, unit))
}
