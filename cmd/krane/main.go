// Command krane is the agent of a region: it follows the streams of the control
// plane, makes its cluster match them, and reports what runs. "krane --help"
// lists its settings.
package main

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
)

func main() { program.Main(command()) }

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
			return program.Start(c.Context(), a.Logger, a)
		},
	}
	flags := root.Flags()
	flags.StringVar(&o.config, "config", "", "file with settings as YAML, such as cluster: {region: eu}; flags and variables go before it")
	program.KubeconfigFlag(flags, &o.kubeconfig)
	program.LogLevelFlag(flags, &o.logLevel)
	o.flags = flags
	o.lookup = program.Settings(flags, settings())
	root.AddCommand(manifestsCommand())
	program.Bind(root, config.Prefix, os.LookupEnv)
	return root
}

// options are the flags of the agent.
type options struct {
	config, kubeconfig, logLevel string
	flags                        *pflag.FlagSet
	lookup                       func(variable string) string
}

// given returns the value of a variable or of its flag. A flag is also given if it is set to
// nothing, which goes before the file.
func (o options) given(variable string) (value string, given bool) {
	value = o.lookup(variable)
	return value, value != "" || program.Emptied(o.flags, variable)
}

func (o options) agent(log io.Writer) (*agent.Agent, error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(o.config, o.given)
	if err != nil {
		return nil, err
	}
	if err := program.MakeFolder("state_dir", c.StateDir); err != nil {
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
	c := program.ManifestsCommand("Print the Namespace, RBAC and Deployment as YAML for kubectl apply -f -", &m)
	c.Long = c.Short + needs
	program.ImageFlag(c.Flags(), &m.Image, "krane")
	c.Flags().StringVar(&m.ControlURL, "control-url", "", "URL of the control plane; required")
	program.Variable(c.Flags(), "control-url", config.Variable("control.url"))
	c.Flags().BoolVar(&m.AllowHTTP, "allow-http", false, "let the URL be plain HTTP to another machine, which shows the token to the network")
	program.Variable(c.Flags(), "allow-http", config.Variable("allow_http"))
	c.Flags().StringVar(&m.Region, "region", "", "region of the cluster; required")
	program.Variable(c.Flags(), "region", config.Variable("cluster.region"))
	program.AgentFlags(c.Flags(), &m.Authorities, &m.StateClaim, "the limit of deletions (none: it goes with the pod)")
	return c
}

// settings are the settings of the agent that hold no secret.
func settings() []program.Setting {
	var all []program.Setting
	for _, s := range []struct{ field, usage, must string }{
		{"instance_id", "name of this process (default: the variable HOSTNAME)", "a name for this process"},
		{"cluster.region", "region of this cluster; required", "a region"},
		{"cluster.platform", "what the region is on", ""},
		{"cluster.cell_id", "names one of several agents of a region", ""},
		{"control.url", "URL of the control plane; required", "the URL of the control plane"},
		{
			"allow_http",
			"let the URLs of the control plane and the vault be plain HTTP to another machine, which shows the tokens to the network" +
				" (default false)",
			"true or false",
		},
		{"token_file", "file with the token for the control plane, read again for each call", ""},
		{
			"token_secret",
			"namespace/name of a Secret where the agent keeps the token that it renews, if the control plane asks for that; none: it renews none",
			"namespace/name",
		},
		{"rpc_port", "port of /healthz, /readyz and /metrics (default 8070)", "a port"},
		{"health_probe_bind_address", program.HealthUsage + "; goes before --rpc-port", "host:port or :port"},
		{"metrics_bind_address", program.MetricsUsage, ""},
		{"vault.url", "service that decrypts variables", ""},
		{"vault.key_file", "file with the keys that decrypt variables, without a service: 32 bytes in base64 a line", ""},
		{"registry.url", "where images are pulled from", ""},
		{"registry.username", "user of the registry", ""},
		{"storage_class_name", "class of scratch volumes (default ebs-csi-gp3)", "the name of a storage class"},
		{"runtime_class", "runtime class of pods (default gvisor)", "the name of a runtime class"},
		{"state_dir", "folder that keeps the limit of deletions over a restart; none: it is kept in memory", ""},
		{
			"pod_security",
			"loosest pod security level that a deployment may ask for: restricted or baseline (default restricted)",
			"restricted or baseline",
		},
		{
			"max_delete_percent",
			"share of what is absent that may be deleted within an hour; at least 5 objects may (default 10)",
			"a whole number from 0 to 100",
		},
		{"k8s.qps", "requests to Kubernetes a second (default 100)", "a whole number"},
		{"k8s.burst", "requests to Kubernetes at once (default 200)", "a whole number"},
	} {
		flag := strings.NewReplacer(".", "-", "_", "-").Replace(s.field)
		all = append(all, program.Setting{
			Flag: flag, Variable: config.Variable(s.field), Usage: s.usage, Must: s.must, Switch: s.must == "true or false",
		})
	}
	return all
}

// needs is what an agent needs of its cluster.
const needs = `

The cluster needs:
  Cilium, with the kind CiliumNetworkPolicy of cilium.io/v2: without it nothing is
  applied, and "controlplane get region" says so in its problems;
  the RuntimeClass gvisor, or the one that KRANE_RUNTIME_CLASS names;
  the StorageClass ebs-csi-gp3, or the one that KRANE_STORAGE_CLASS_NAME names, for
  deployments with storage;
  nodes with the label node-class=untrusted, on which the pods run. They may have the
  taint node-class=untrusted:NoSchedule, which the pods tolerate;
  what sends requests to the pods in the namespace frontline: no other may.`

const help = `Follow the streams of the control plane, make this cluster match them, and
report what runs.

A setting is a flag, a variable such as KRANE_CONTROL_URL, or a field of the file
--config such as control.url. What is secret has no flag:
  KRANE_CONTROL_TOKEN      token for the control plane, without --token-file
  KRANE_VAULT_TOKEN        token for --vault-url
  KRANE_REGISTRY_PASSWORD  password of --registry-username`
