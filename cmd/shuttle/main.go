// Command shuttle is the cluster agent: it pulls the wanted state of one
// cluster from Starbase and makes the cluster match it. Its configuration is in
// environment variables; "shuttle --help" lists them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/shuttle"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, command(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func command() *cobra.Command {
	var kubeconfig string
	root := &cobra.Command{
		Use:   "shuttle",
		Short: "Pull the wanted state of this cluster from Starbase and keep the cluster that way",
		Long:  help,
		Args:  program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			agent, err := newAgent(kubeconfig, c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return agent.Start(c.Context())
		},
	}
	root.Flags().StringVar(&kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file (KUBECONFIG); without it the pod's service account is used")
	root.AddCommand(program.VersionCommand(), manifestsCommand())
	return root
}

func manifestsCommand() *cobra.Command {
	m := shuttle.Manifests{}
	c := program.ManifestsCommand("Print the Namespace, RBAC and Deployment as YAML for kubectl apply -f -", func() (string, error) { return m.YAML() }) //nolint:gocritic // m is complete when it is called
	program.ImageFlag(c.Flags(), &m.Image, "shuttle")
	c.Flags().StringVar(&m.StarbaseURL, "starbase-url", "https://starbase.example.com", "STARFORM_STARBASE_URL")
	c.Flags().StringVar(&m.ClusterID, "cluster-id", "00000000-0000-4000-8000-000000000000", "STARFORM_CLUSTER_ID")
	c.Flags().StringVar(&m.Region, "region", "nyc3", "STARFORM_REGION")
	c.Flags().StringVar(&m.Authorities, "ca-config-map", "", "ConfigMap with certificates of authorities that are trusted beside the usual ones, such as a private one of the control plane (none)")
	c.Flags().StringVar(&m.StateClaim, "state-claim", "", "PersistentVolumeClaim that keeps unsent billing records (none: they go with the pod)")
	return c
}

func newAgent(kubeconfig string, log io.Writer) (*shuttle.Agent, error) {
	config, err := shuttle.ReadConfig(os.Getenv)
	if err != nil {
		return nil, err
	}
	logger, err := program.NewLogger(log, config.LogLevel)
	if err != nil {
		return nil, err
	}
	access, err := kubeaccess.Config(kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	return &shuttle.Agent{Config: config, Kubernetes: access, Logger: logger}, nil
}

const help = `Pull the wanted state of this cluster from Starbase and keep the cluster that way.

Environment:
  STARFORM_STARBASE_URL        base URL of Starbase (required)
  STARFORM_CLUSTER_ID          UUID of this cluster (required)
  STARFORM_REGION              region of this cluster, like nyc3 (required)
  STARFORM_AUTH_TOKEN_FILE     file that holds the cluster's token (required); read anew for each request
  STARFORM_RECONCILE_INTERVAL  time between passes (30s)
  STARFORM_SNAPSHOT_INTERVAL   time between billing records (60s)
  STARFORM_CAPACITY_INTERVAL   time between capacity reports (60s)
  STARFORM_WAKE_ON_DRIFT       start a pass when somebody else changes an object (true)
  STARFORM_MAX_DELETE_PERCENT  share of the owned objects that one pass may delete (10; at least 5 objects)
  STARFORM_DNS_SELECTOR        pods that answer DNS (kube-system/k8s-app=kube-dns)
  STARFORM_GATEWAY_SERVICE     namespace/name of the gateway's Service (none: it is not sized)
  STARFORM_SOFT_LIMIT          pods that the cluster should hold, reported with its pods (1000)
  STARFORM_SNAPSHOT_WAL_DIR    folder for billing records that could not be sent (none; they are dropped)
  STARFORM_LEADER_ELECTION     run only while holding a Lease (false)
  STARFORM_METRICS_ADDR        listener of /healthz, /readyz and /metrics (:8080)
  STARFORM_LOG_LEVEL           debug, info, warn or error (info)

A variable that is missing or wrong ends the program with status 2.`
