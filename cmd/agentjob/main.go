// Command agentjob is the agent-run operator: it makes each AgentJob one run of an AI
// agent, or a recurring one. "agentjob --help" lists its settings.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // an image may have no zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/internal/crds"
	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() { program.Main(command()) }

// options are the flags.
type options struct {
	crd, elect                                            bool
	health, metrics, kubeconfig, namespace, watch, access string
	ceiling, logLevel                                     string
	levelFromVariable                                     bool
	keep                                                  time.Duration
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
			o.levelFromVariable = program.FromVariable(c.Flags(), "log-level")
			w, err := o.operator(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return program.Start(c.Context(), w.Logger, w)
		},
	}
	flags := root.Flags()
	flags.BoolVar(&o.crd, "crd", false, "print the custom resource definitions as YAML, and exit")
	program.AddressFlags(flags, &o.health, &o.metrics, "0.0.0.0:8080", "")
	program.Variable(flags, program.HealthFlag, "THURKUBE_HEALTH_ADDR")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "health-addr" { // the name in THURKUBE_HEALTH_ADDR
			name = program.HealthFlag
		}
		return pflag.NormalizedName(name)
	})
	program.KubeconfigFlag(flags, &o.kubeconfig)
	program.NamespaceFlag(flags, &o.namespace, operator.Namespace, "POD_NAMESPACE")
	flags.StringVar(&o.watch, "watch-namespace", "", "namespace of the jobs; empty: all")
	program.LeaderElectFlag(flags, &o.elect)
	flags.StringVar(
		&o.access,
		"cluster-access-namespaces",
		"labelled",
		"where jobs may have rights in the whole cluster: labelled (namespaces with thurkube.thurbeen.eu/allow-cluster-access=true) or all",
	)
	flags.StringVar(
		&o.ceiling,
		"ceiling",
		operator.Ceiling,
		"ClusterRole that holds what may be granted to jobs; rights of the operator beyond it are never granted",
	)
	flags.StringVar(
		&o.logLevel,
		"log-level",
		"info",
		"trace, debug, info, warn, error or off, or a list of target=level; an unknown one is an error of the flag, and info in the variable",
	)
	program.Variable(flags, "log-level", "RUST_LOG")
	flags.DurationVar(&o.keep, "keep-finished", 24*time.Hour, "how long finished Jobs stay")
	root.AddCommand(manifestsCommand())
	program.Bind(root, "THURKUBE_", os.LookupEnv)
	return root
}

func (o options) operator(log io.Writer) (*operator.Operator, error) {
	level, unknown := logLevel(o.logLevel)
	if (unknown != "" || o.logLevel == "") && !o.levelFromVariable {
		return nil, fmt.Errorf("--log-level: is %q, must be trace, debug, info, warn, error or off, or a list of target=level", unknown)
	}
	logger := slog.New(program.NewHandler(log, level))
	if unknown != "" {
		logger.Warn("log level unknown, info is used", slog.String("value", unknown))
	}
	if err := program.CheckAddresses(o.health, o.metrics); err != nil {
		return nil, err
	}
	if err := program.CheckLease(o.namespace, o.elect); err != nil {
		return nil, err
	}
	if o.watch != "" {
		if err := program.CheckNamespace("watch-namespace", o.watch); err != nil {
			return nil, err
		}
	}
	if o.access != "labelled" && o.access != "all" {
		return nil, fmt.Errorf("--cluster-access-namespaces: is %q, must be labelled or all", o.access)
	}
	if message := path.IsValidPathSegmentName(o.ceiling); o.ceiling == "" || len(message) > 0 {
		return nil, fmt.Errorf("--ceiling: is %q, must be the name of a ClusterRole such as %s", o.ceiling, operator.Ceiling)
	}
	if o.keep <= 0 {
		return nil, fmt.Errorf("--keep-finished: is %s, must be more than 0s", o.keep)
	}
	config, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only a name for people
	return &operator.Operator{
		Kubernetes:       config,
		Namespace:        o.namespace,
		WatchNamespace:   o.watch,
		Alone:            !o.elect,
		Address:          o.health,
		MetricsAddress:   o.metrics,
		AccessEverywhere: o.access == "all",
		Ceiling:          o.ceiling,
		KeepFinished:     o.keep,
		Instance:         cmp.Or(os.Getenv("POD_NAME"), host, "thurkube"),
		Logger:           logger,
	}, nil
}

func manifestsCommand() *cobra.Command {
	var m operator.Manifests
	c := program.ManifestsCommand("Print definitions, rights and Deployment as YAML for kubectl apply --server-side -f -", &m)
	program.ImageFlag(c.Flags(), &m.Image, "agentjob")
	return c
}
