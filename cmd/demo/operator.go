package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// operatorDemo is what the demos of the operators have in common: a cluster of their own,
// one program beside it, steps, and the end.
type operatorDemo struct {
	demo demo
	// program is its name, and the name of its folder in cmd.
	program string
	// namespace and account are the operator's in the cluster.
	namespace, account string
	limit              time.Duration
	// look is what to ask kubectl while the demo is kept.
	look string

	operator *process.Process
}

// command returns the command of the demo, which runs steps. Without --keep it ends with
// end, if that is set; stop is called in any case.
func (o *operatorDemo) command(
	use, short string,
	steps []func(context.Context) error,
	end func(context.Context) error,
	stop func(),
) *cobra.Command {
	o.demo.display = newDisplay(os.Stdout)
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), steps, end, stop) },
	}
	c.Flags().BoolVar(&o.demo.keep, "keep", false, "leave everything running at the end, until interrupted")
	return c
}

func (o *operatorDemo) run(
	ctx context.Context,
	steps []func(context.Context) error,
	end func(context.Context) error,
	stop func(),
) (err error) {
	d := &o.demo
	if d.dir, err = os.MkdirTemp("", "trueup-"+o.program+"-"); err != nil {
		return err
	}
	d.programs, d.processes = d.dir, process.NewGroup(d.dir)
	defer func() {
		d.processes.Close()
		stop()
		if d.kube.cluster != nil {
			d.kube.cluster.Stop()
		}
		err = errors.Join(err, os.RemoveAll(d.dir))
	}()
	if err := build(ctx, d.display, d.dir, "cmd/"+o.program); err != nil {
		return err
	}
	start := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done within %s", o.limit))
	defer cancel()
	for _, step := range steps {
		if err := step(bounded); err != nil {
			return o.explain(err)
		}
	}
	if d.keep {
		d.display.print("KUBECONFIG=" + d.kube.cluster.Kubeconfig + " kubectl " + o.look)
		<-ctx.Done()
		return nil
	}
	if end != nil {
		if err := end(bounded); err != nil {
			return o.explain(err)
		}
	}
	d.summary(time.Since(start))
	return nil
}

// explain adds the operator's last lines to the error of a step.
func (o *operatorDemo) explain(err error) error {
	if o.operator == nil {
		return err
	}
	return fmt.Errorf("%w\nlast lines of %s:\n%s", err, o.program, o.operator.Tail())
}

func (o *operatorDemo) kubectl(ctx context.Context, args ...string) (string, error) {
	return o.demo.kube.cluster.Kubectl(ctx, args...)
}

// install applies what the program's manifests are with these flags. The operator runs
// beside the cluster, so that its Deployment goes again.
func (o *operatorDemo) install(ctx context.Context, flags ...string) error {
	o.demo.display.step("Operator")
	manifests, err := output(ctx, o.path(), append([]string{"manifests"}, flags...)...)
	if err != nil {
		return err
	}
	if err := o.demo.kube.cluster.Apply(ctx, manifests); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"wait", "--for=condition=Established", "--timeout=300s", "crd", "--all"},
		{"delete", "deployment", "-n", o.namespace, o.account, "--cascade=foreground", "--timeout=60s"},
	} {
		if _, err := o.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (o *operatorDemo) path() string { return filepath.Join(o.demo.programs, o.program) }

// begin runs the operator as its own account, with these variables and flags, until it
// listens.
func (o *operatorDemo) begin(ctx context.Context, env []string, flags ...string) error {
	_, kubeconfig, err := o.demo.kube.cluster.ServiceAccount(ctx, o.namespace, o.account)
	if err != nil {
		return err
	}
	if o.operator, err = o.demo.processes.Run(
		o.program,
		o.path(),
		env,
		append([]string{"--kubeconfig", kubeconfig}, flags...)...); err != nil {
		return err
	}
	if _, err := listening(ctx, o.operator); err != nil {
		return err
	}
	o.demo.display.done("%s runs as %s", o.program, o.user())
	return nil
}

// user is the operator's account as the server calls it.
func (o *operatorDemo) user() string {
	return strings.Join([]string{"system", "serviceaccount", o.namespace, o.account}, ":")
}
