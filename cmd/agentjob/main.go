// Command agentjob is the agent-run operator: it makes each AgentJob one run of an AI
// agent, or a recurring one. "agentjob --help" lists its settings.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	_ "time/tzdata" // an image may have no zones

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/agentjob"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/agentjob/crds"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, command(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	crd, alone                                             bool
	health, kubeconfig, namespace, watch, access, logLevel string
	keep                                                   time.Duration
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "agentjob", Short: "Make each AgentJob one run of an agent, or a recurring one", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.crd {
				text, err := crds.YAML()
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(text)
				return err
			}
			w, err := o.operator(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return w.Start(c.Context())
		},
	}
	flags := root.Flags()
	flags.BoolVar(&o.crd, "crd", false, "print the custom resource definitions as YAML, and exit")
	flags.StringVar(&o.health, "health-addr", cmp.Or(os.Getenv("THURKUBE_HEALTH_ADDR"), "0.0.0.0:8080"), "address of /healthz, /readyz and /metrics (THURKUBE_HEALTH_ADDR)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file (KUBECONFIG); without it the pod's service account is used")
	flags.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), agentjob.Namespace), "namespace of the Lease (POD_NAMESPACE)")
	flags.StringVar(&o.watch, "watch-namespace", "", "namespace of the jobs; empty: all")
	flags.BoolVar(&o.alone, "no-leader-election", false, "work without a Lease: only one replica may run then")
	flags.StringVar(&o.access, "cluster-access-namespaces", "labelled", "where jobs may have rights in the whole cluster: labelled (namespaces with thurkube.thurbeen.eu/allow-cluster-access=true) or all")
	flags.StringVar(&o.logLevel, "log-level", os.Getenv("RUST_LOG"), "trace, debug, info, warn, error or off, or a list of target=level (RUST_LOG); default info")
	flags.DurationVar(&o.keep, "keep-finished", 24*time.Hour, "how long finished Jobs stay")
	root.AddCommand(program.VersionCommand(), manifestsCommand())
	return root
}

func (o options) operator(log io.Writer) (*agentjob.Operator, error) {
	level, unknown := logLevel(o.logLevel)
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
	if unknown != "" {
		logger.Warn("log level unknown, info is used", slog.String("value", unknown))
	}
	if _, port, err := net.SplitHostPort(o.health); err != nil || !isPort(port) {
		return nil, fmt.Errorf("--health-addr: is %q, must be host:port", o.health)
	}
	if o.namespace == "" && !o.alone {
		return nil, errors.New("--namespace: is empty, must be set, or --no-leader-election be set")
	}
	if o.access != "labelled" && o.access != "all" {
		return nil, fmt.Errorf("--cluster-access-namespaces: is %q, must be labelled or all", o.access)
	}
	if o.keep <= 0 {
		return nil, fmt.Errorf("--keep-finished: is %s, must be more than 0s", o.keep)
	}
	config, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only a name for people
	return &agentjob.Operator{
		Kubernetes: config, Namespace: o.namespace, WatchNamespace: o.watch, Alone: o.alone, Address: o.health, AccessEverywhere: o.access == "all",
		KeepFinished: o.keep, Instance: cmp.Or(os.Getenv("POD_NAME"), host, "thurkube"), Logger: logger,
	}, nil
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

func manifestsCommand() *cobra.Command {
	var m agentjob.Manifests
	c := program.ManifestsCommand("Print definitions, rights and Deployment as YAML for kubectl apply --server-side -f -", func() (string, error) { return m.YAML() }) //nolint:gocritic // m is complete when it is called
	program.ImageFlag(c.Flags(), &m.Image, "agentjob")
	return c
}
