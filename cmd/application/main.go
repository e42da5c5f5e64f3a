// Command application is the application operator: it gives each Application its database,
// buckets, realm and workload. "application --help" lists its settings.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, command(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const services = `Services that applications use are set in the environment:
  DB_ADMIN_URL         administrator of PostgreSQL, with CREATEROLE: postgresql://admin:password@host:5432/database
  KEYCLOAK_ADMIN_URL, KEYCLOAK_ADMIN_USER, KEYCLOAK_ADMIN_PASSWORD
                       Keycloak, and an administrator of its realm master who may create realms
  AWS_ENDPOINT_URL     another S3 than that of AWS, in path style
  S3_REGION            region of S3 (ca-central-1)
  REDIS_ENDPOINT       host of the managed Redis
  OPENSEARCH_ENDPOINT  host of the managed OpenSearch
  BASE_DOMAIN          domain that hosts are below (platform.company.dev)
Credentials for S3 are found as by the SDK of AWS.`

// options are the flags.
type options struct {
	address, kubeconfig, namespace, logLevel string
	checkInterval                            time.Duration
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "application", Short: "Give each Application its database, buckets, realm and workload", Args: program.NoArgs,
		Long: "Give each Application its database, buckets, realm and workload.\n\n" + services,
		RunE: func(c *cobra.Command, _ []string) error {
			operator, err := o.operator(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return operator.Start(c.Context())
		},
	}
	flags := root.Flags()
	flags.StringVar(&o.address, "address", "0.0.0.0:9090", "address of /healthz, /readyz and /metrics")
	flags.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file (KUBECONFIG); without it the pod's service account is used")
	flags.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("OPERATOR_NAMESPACE"), application.Namespace), "namespace of the Lease (OPERATOR_NAMESPACE)")
	flags.DurationVar(&o.checkInterval, "check-interval", 5*time.Minute, "time between two looks at what is outside of the cluster: databases, buckets, realms; at least 1s")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	root.AddCommand(program.VersionCommand(), manifestsCommand(), environmentCommand())
	return root
}

func (o options) operator(log io.Writer) (*application.Operator, error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, err
	}
	settings, err := application.SettingsOf(os.Getenv)
	if err != nil {
		return nil, err
	}
	config, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only a name for people
	if o.checkInterval < time.Second {
		return nil, fmt.Errorf("--check-interval: is %s, must be at least 1s", o.checkInterval)
	}
	return &application.Operator{
		CheckInterval: o.checkInterval,
		Kubernetes:    config, Namespace: o.namespace, Address: o.address, Settings: settings, Logger: logger,
		Instance: cmp.Or(os.Getenv("POD_NAME"), host, "plattr-operator"),
	}, nil
}

func manifestsCommand() *cobra.Command {
	var m application.Manifests
	c := program.ManifestsCommand("Print definitions, rights and Deployment as YAML for kubectl apply --server-side -f -", func() (string, error) { return m.YAML() }) //nolint:gocritic // m is complete when it is called
	program.ImageFlag(c.Flags(), &m.Image, "application")
	c.Flags().StringVar(&m.BaseDomain, "base-domain", "platform.company.dev", "domain that hosts are below")
	return c
}

func environmentCommand() *cobra.Command {
	var profile, file string
	c := &cobra.Command{
		Use: "env", Short: "Print the variables of an app, on a developer's machine or in the cluster", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := application.SettingsOf(os.Getenv)
			if err != nil {
				return &program.UsageError{Err: err}
			}
			if file == "" {
				return program.Usagef("-f: is required: a file with an Application")
			}
			manifest, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text, err := settings.Environment(manifest, application.Profile(profile))
			if err != nil {
				return &program.UsageError{Err: err}
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&profile, "profile", string(application.Local), "local or remote")
	c.Flags().StringVarP(&file, "file", "f", "", "file with an Application")
	return c
}
