// Command krane is the agent of a region: it follows the streams of the control
// plane, makes its cluster match them, and reports what runs. "krane --help"
// lists its settings.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, command(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "krane",
		Short: "Follow the streams of the control plane and make this cluster match them",
		Long:  help,
		Args:  program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := o.agent(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return a.Start(c.Context())
		},
	}
	flags := root.Flags()
	flags.StringVar(&o.config, "config", "", "file with settings as YAML; environment variables go before it")
	flags.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file (KUBECONFIG); without it the pod's service account is used")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	root.AddCommand(program.VersionCommand(), manifestsCommand())
	return root
}

// options are the flags of the agent.
type options struct{ config, kubeconfig, logLevel string }

func (o options) agent(log io.Writer) (*agent.Agent, error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	c, err := config.Load(o.config, os.Getenv)
	if err != nil {
		return nil, err
	}
	access, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	logger = logger.With(slog.String("instance", c.InstanceID), slog.String("region", c.Cluster.Region))
	return &agent.Agent{Config: c, Kubernetes: access, Logger: logger}, nil
}

func manifestsCommand() *cobra.Command {
	var m manifests.Manifests
	c := program.ManifestsCommand("Print the Namespace, RBAC and Deployment as YAML for kubectl apply -f -", func() (string, error) { return m.YAML() }) //nolint:gocritic // m is complete when it is called
	program.ImageFlag(c.Flags(), &m.Image, "krane")
	c.Flags().StringVar(&m.ControlURL, "control-url", "https://control.example.com", "URL of the control plane")
	c.Flags().StringVar(&m.Region, "region", "eu-central-1", "region of the cluster")
	c.Flags().StringVar(&m.Authorities, "ca-config-map", "", "ConfigMap with certificates of authorities that are trusted beside the usual ones, such as a private one of the control plane (none)")
	c.Flags().StringVar(&m.StateClaim, "state-claim", "", "PersistentVolumeClaim that keeps the limit of deletions (none: it goes with the pod)")
	return c
}

const help = `Follow the streams of the control plane, make this cluster match them, and
report what runs.

Settings, each also as a variable, such as KRANE_CONTROL_URL for control.url:
  instance_id              name of this process (HOSTNAME)
  cluster.region           region of this cluster (required)
  cluster.platform         what the region is on
  cluster.cell_id          names one of several agents of a region
  control.url              URL of the control plane (required)
  control.token            token for it; or
  token_file               file that holds it, read anew for each call
  rpc_port                 port of /healthz, /readyz and /metrics (8070)
  vault.url, vault.token   service that decrypts variables; or
  vault.key_file           file that holds keys
  registry.url, registry.username, registry.password
                           where images are pulled from
  storage_class_name       class of scratch volumes (ebs-csi-gp3)
  runtime_class            runtime class of pods (gvisor)
  state_dir                folder that keeps the limit of deletions over a restart (none)
  max_delete_percent       share of what is absent that may go within 5 minutes (10; at least 5)
  k8s.qps, k8s.burst       bounds of requests to Kubernetes (100, 200)

A setting that is missing or wrong ends the program with status 2.`
