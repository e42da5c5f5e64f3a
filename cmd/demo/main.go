// Command demo shows trueup's main job on a real Kubernetes, from scratch: it
// starts a control plane and a cluster with simulated nodes, puts a desired state
// into the one, and shows that the agent makes the other match it, repairs what is
// changed behind its back, and sends no request at rest.
//
// It needs only Go. It touches an existing cluster only when
// --context names one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// limit bounds the demo after its build.
const limit = 3 * time.Minute

func command() *cobra.Command {
	d := demo{display: newDisplay(os.Stdout)}
	c := &cobra.Command{
		Use:           "demo",
		Short:         "Show the control plane and the cluster agent at work on a real Kubernetes",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return d.run(c.Context())
		},
	}
	c.Flags().BoolVar(&d.keep, "keep", false, "leave everything running at the end, until interrupted")
	c.Flags().BoolVar(&d.postgres, "postgres", false, "keep everything in a PostgreSQL that the demo starts, not in a SQLite file")
	c.Flags().StringVar(&d.context, "context", "", "use this context of the kubeconfig instead of starting a cluster")
	c.AddCommand(regionsCommand(), agentJobsCommand(), nodePoolsCommand(), applicationsCommand())
	c.Flags().StringVar(&d.image, "image", "registry.k8s.io/pause:3.10", "image that the services run")
	return c
}
