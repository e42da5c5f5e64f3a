// Command shuttle is the cluster agent: it pulls the desired state of one cluster from
// Starbase and makes the cluster match it. "shuttle --help" lists its settings.
package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

func main() { program.Main(command()) }

const wantDuration = "a duration from 1s to 1h"

// settings returns the settings of the agent.
func settings() []program.Setting {
	return []program.Setting{
		{
			Flag:     "starbase-url",
			Variable: "STARFORM_STARBASE_URL",
			Usage:    "base URL of Starbase; required",
			Must:     "a URL like https://starbase.example.com",
		},
		{
			Flag:     "allow-http",
			Variable: "STARFORM_ALLOW_HTTP",
			Usage:    "let the URL of Starbase be plain HTTP to another machine, which shows the token to the network (default false)",
			Must:     "true or false",
			Switch:   true,
		},
		{
			Flag:     "request-timeout",
			Variable: "STARFORM_REQUEST_TIMEOUT",
			Usage:    "time for one attempt to reach Starbase, its answer included (default 30s)",
			Must:     wantDuration,
		},
		{Flag: "cluster-id", Variable: "STARFORM_CLUSTER_ID", Usage: "UUID of this cluster; required", Must: "a UUID in lower case"},
		{Flag: "region", Variable: "STARFORM_REGION", Usage: "region of this cluster, like nyc3; required", Must: "a region like nyc3"},
		{
			Flag:     "auth-token-file",
			Variable: "STARFORM_AUTH_TOKEN_FILE",
			Usage:    "file with the cluster's token, read again for each request; required",
			Must:     "a file with the token",
		},
		{
			Flag:     "auth-token-secret",
			Variable: "STARFORM_AUTH_TOKEN_SECRET",
			Usage:    "namespace/name of a Secret where the agent keeps the token that it renews, if Starbase asks for that; none: it renews none",
			Must:     "namespace/name",
		},
		{Flag: "reconcile-interval", Variable: "STARFORM_RECONCILE_INTERVAL", Usage: "time between passes (default 30s)", Must: wantDuration},
		{
			Flag:     "transport",
			Variable: "STARFORM_TRANSPORT",
			Usage: "poll: ask Starbase for the desired state in each interval; stream: keep a stream open that names a new one at once, " +
				"and ask then (default poll)",
			Must: "poll or stream",
		},
		{
			Flag:     "snapshot-interval",
			Variable: "STARFORM_SNAPSHOT_INTERVAL",
			Usage:    "time between billing records (default 60s)",
			Must:     wantDuration,
		},
		{
			Flag:     "capacity-interval",
			Variable: "STARFORM_CAPACITY_INTERVAL",
			Usage:    "time between capacity reports (default 60s)",
			Must:     wantDuration,
		},
		{
			Flag:     "wake-on-drift",
			Variable: "STARFORM_WAKE_ON_DRIFT",
			Usage:    "start a pass when another writer changes an object (default true)",
			Must:     "true or false",
			Switch:   true,
		},
		{
			Flag:     "pod-security",
			Variable: "STARFORM_POD_SECURITY",
			Usage:    "loosest pod security level that a service may ask for: restricted or baseline (default restricted)",
			Must:     "restricted or baseline",
		},
		{
			Flag:     "max-delete-percent",
			Variable: "STARFORM_MAX_DELETE_PERCENT",
			Usage:    "share of the services and projects that may vanish in an hour; at least 5 may (default 10)",
			Must:     "a whole number from 0 to 100",
		},
		{
			Flag:     "dns-selector",
			Variable: "STARFORM_DNS_SELECTOR",
			Usage:    "pods that answer DNS (default kube-system/k8s-app=kube-dns)",
			Must:     "namespace/label=value, as in kube-system/k8s-app=kube-dns",
		},
		{
			Flag:     "gateway",
			Variable: "STARFORM_GATEWAY",
			Usage:    "namespace/name of the Gateway that routes attach to (default starform-gateway/starform-gateway)",
			Must:     "namespace/name",
		},
		{
			Flag:     "gateway-service",
			Variable: "STARFORM_GATEWAY_SERVICE",
			Usage:    "namespace/name of the gateway's Service, which is sized, and whose namespace may reach pods; none: neither",
		},
		{
			Flag:     "image-pull-secrets",
			Variable: "STARFORM_IMAGE_PULL_SECRETS",
			Usage:    "names of Secrets in the namespaces of projects that images are pulled with, with commas between them; none: without",
		},
		{
			Flag:     "cluster-ranges",
			Variable: "STARFORM_CLUSTER_RANGES",
			Usage:    "public networks of pods and nodes, with commas between them, which other pods may not reach; none: all are private",
		},
		{
			Flag:     "soft-limit",
			Variable: "STARFORM_SOFT_LIMIT",
			Usage:    "pods that the cluster should hold, reported with its pods (default 1000)",
			Must:     "a whole number",
		},
		{
			Flag:     "snapshot-wal-dir",
			Variable: "STARFORM_SNAPSHOT_WAL_DIR",
			Usage:    "folder for billing records that could not be sent; none: they are dropped",
		},
		{
			Flag:     "leader-elect",
			Variable: "STARFORM_LEADER_ELECTION",
			Usage:    "work only while holding a Lease: needed with more than one replica (default false)",
			Must:     "true or false",
			Switch:   true,
		},
		{
			Flag:     program.HealthFlag,
			Variable: "STARFORM_METRICS_ADDR",
			Usage:    program.HealthUsage + " (default :8080)",
			Must:     "host:port or :port",
		},
		{Flag: program.MetricsFlag, Variable: "STARFORM_METRICS_BIND_ADDRESS", Usage: program.MetricsUsage},
	}
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "shuttle",
		Short: "Pull the desired state of this cluster from Starbase and keep the cluster that way",
		Args:  program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			agent, err := o.agent(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return program.Start(c.Context(), agent.Logger, agent)
		},
	}
	flags := root.Flags()
	o.lookup = program.Settings(flags, settings())
	program.KubeconfigFlag(flags, &o.kubeconfig)
	program.LogLevelFlag(flags, &o.logLevel)
	program.NamespaceFlag(flags, &o.namespace, agent.Namespace, "POD_NAMESPACE")
	root.AddCommand(manifestsCommand())
	program.Bind(root, "STARFORM_", os.LookupEnv)
	return root
}

func manifestsCommand() *cobra.Command {
	m := agent.Manifests{}
	c := program.ManifestsCommand("Print the Namespace, RBAC and Deployment as YAML for kubectl apply -f -", &m)
	program.ImageFlag(c.Flags(), &m.Image, "shuttle")
	for _, s := range []struct {
		value       *string
		flag, usage string
	}{
		{&m.StarbaseURL, "starbase-url", "base URL of Starbase; required"},
		{&m.ClusterID, "cluster-id", "UUID of the cluster; required"},
		{&m.Region, "region", "region of the cluster, like nyc3; required"},
	} {
		c.Flags().StringVar(s.value, s.flag, "", s.usage)
		program.Variable(c.Flags(), s.flag, "STARFORM_"+strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_")))
	}
	m.Settings = program.Settings(c.Flags(), slices.DeleteFunc(settings(), func(s program.Setting) bool {
		return !slices.Contains(agent.InstalledSettings(), s.Variable)
	}))
	program.AgentFlags(c.Flags(), &m.Authorities, &m.StateClaim, "unsent billing records (none: they go with the pod)")
	return c
}

// options are the flags of the agent.
type options struct {
	kubeconfig, logLevel, namespace string
	lookup                          func(variable string) string
}

func (o options) agent(log io.Writer) (*agent.Agent, error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, err
	}
	config, err := agent.ReadConfig(o.lookup)
	// Also without a Lease: the agent keeps there what it remembers.
	if err := errors.Join(err, program.CheckNamespace("namespace", o.namespace)); err != nil {
		return nil, err
	}
	config.Namespace = o.namespace
	if err := program.MakeFolder("STARFORM_SNAPSHOT_WAL_DIR", config.SnapshotWALDir); err != nil {
		return nil, err
	}
	access, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	return &agent.Agent{Config: config, Kubernetes: access, Logger: logger}, nil
}
