// Command demo shows the programs of this repository at work on a real Kubernetes, from
// scratch. Alone, it starts a control plane and a cluster with simulated nodes, puts a
// desired state into the one, and shows that the agent makes the other match it, repairs
// what is changed behind its back, sends no request at rest, and leaves nothing at the end.
// Each subcommand does the same for another program.
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

func command() *cobra.Command {
	main := clustersCommand()
	main.AddCommand(regionsCommand(), agentJobsCommand(), nodePoolsCommand(), applicationsCommand(), costCommand())
	return main
}
