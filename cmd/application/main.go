// Command application is the application operator: it gives each Application its database,
// buckets, realm and workload. "application --help" lists its settings.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/application/operator"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() { program.Main(command()) }

// services returns the settings of what applications use. What holds a password has no flag.
func services() []program.Setting {
	return []program.Setting{
		{
			Flag:     "db-connection-limit",
			Variable: "DB_CONNECTION_LIMIT",
			Usage:    "connections that the role of one app may have (default 50)",
			Must:     "a number such as 50",
		},
		{
			Flag:     "db-statement-timeout",
			Variable: "DB_STATEMENT_TIMEOUT",
			Usage:    "time that a statement of an app may take, unless its session sets another (default 5m)",
			Must:     "a duration such as 5m",
		},
		{Flag: "keycloak-admin-url", Variable: "KEYCLOAK_ADMIN_URL", Usage: "Keycloak; none: apps have no realms"},
		{Flag: "keycloak-admin-user", Variable: "KEYCLOAK_ADMIN_USER", Usage: "administrator of its realm master who may create realms"},
		{Flag: "aws-endpoint-url", Variable: "AWS_ENDPOINT_URL", Usage: "another S3 than that of AWS, in path style"},
		{Flag: "s3-region", Variable: "S3_REGION", Usage: "region of S3 (default ca-central-1)", Must: "a region such as ca-central-1"},
		{Flag: "redis-endpoint", Variable: "REDIS_ENDPOINT", Usage: "host of the managed Redis"},
		{Flag: "opensearch-endpoint", Variable: "OPENSEARCH_ENDPOINT", Usage: "host of the managed OpenSearch"},
		{
			Flag:     "base-domain",
			Variable: "BASE_DOMAIN",
			Usage:    "domain that hosts are below (default platform.company.dev)",
			Must:     "a domain such as platform.example.com",
		},
		{
			Flag:     "allowed-domains",
			Variable: "ALLOWED_DOMAINS",
			Usage:    "further domains that spec.domain may be below, separated by commas; * is any",
		},
		{
			Flag:     "reserved-hosts",
			Variable: "RESERVED_HOSTS",
			Usage:    "hosts that no app may have, beside auth., the environments and services of the platform",
		},
		{
			Flag:     "gateway-namespaces",
			Variable: "GATEWAY_NAMESPACES",
			Usage:    "namespaces of the ingress controllers, which may connect to the apps (default ingress-nginx)",
			Must:     "names of namespaces such as ingress-nginx, separated by commas",
		},
	}
}

const secrets = `What holds a password is set in the environment alone:
  DB_ADMIN_URL            administrator of PostgreSQL, with CREATEROLE: postgresql://admin:password@host:5432/database
                          its parameters, such as sslmode, reach the apps; credentials do not; none: apps have no databases
  KEYCLOAK_ADMIN_PASSWORD password of --keycloak-admin-user
Credentials for S3 are found as by the SDK of AWS.`

// options are the flags.
type options struct {
	health, metrics, kubeconfig, namespace, logLevel string
	elect                                            bool
	checkInterval                                    time.Duration
	lookup                                           func(variable string) string // of services
}

func command() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "application", Short: "Give each Application its database, buckets, realm and workload", Args: program.NoArgs,
		Long: "Give each Application its database, buckets, realm and workload.\n\n" + secrets,
		RunE: func(c *cobra.Command, _ []string) error {
			operator, err := o.operator(c.OutOrStdout())
			if err != nil {
				return &program.UsageError{Err: err}
			}
			return program.Start(c.Context(), operator.Logger, operator)
		},
	}
	flags := root.Flags()
	program.AddressFlags(flags, &o.health, &o.metrics, "0.0.0.0:9090", "")
	program.KubeconfigFlag(flags, &o.kubeconfig)
	program.NamespaceFlag(flags, &o.namespace, operator.Namespace, "OPERATOR_NAMESPACE")
	program.LeaderElectFlag(flags, &o.elect)
	flags.DurationVar(
		&o.checkInterval,
		"check-interval",
		5*time.Minute,
		"time between two looks at what is outside of the cluster: databases, buckets, realms; at least 1s",
	)
	program.LogLevelFlag(flags, &o.logLevel)
	o.lookup = program.Settings(flags, services())
	root.AddCommand(manifestsCommand(), environmentCommand())
	program.Bind(root, "PLATTR_", os.LookupEnv)
	return root
}

func (o options) operator(log io.Writer) (*operator.Operator, error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return nil, err
	}
	if err := program.CheckAddresses(o.health, o.metrics); err != nil {
		return nil, err
	}
	settings, err := operator.SettingsOf(o.lookup)
	if err != nil {
		return nil, err
	}
	if err := program.CheckLease(o.namespace, o.elect); err != nil {
		return nil, err
	}
	if o.checkInterval < time.Second {
		return nil, fmt.Errorf("--check-interval: is %s, must be at least 1s", o.checkInterval)
	}
	config, err := kubeaccess.Config(o.kubeconfig, logger)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only a name for people
	return &operator.Operator{
		CheckInterval:  o.checkInterval,
		Kubernetes:     config,
		Namespace:      o.namespace,
		Address:        o.health,
		MetricsAddress: o.metrics,
		Alone:          !o.elect,
		Settings:       settings,
		Logger:         logger,
		Instance:       cmp.Or(os.Getenv("POD_NAME"), host, "plattr-operator"),
	}, nil
}

func manifestsCommand() *cobra.Command {
	var m operator.Manifests
	c := program.ManifestsCommand("Print definitions, rights and Deployment as YAML for kubectl apply --server-side -f -", &m)
	program.ImageFlag(c.Flags(), &m.Image, "application")
	c.Flags().StringVar(&m.BaseDomain, "base-domain", "", "domain that hosts are below; required")
	program.Variable(c.Flags(), "base-domain", "BASE_DOMAIN")
	return c
}

func environmentCommand() *cobra.Command {
	var profile, file string
	var lookup func(string) string
	c := &cobra.Command{
		Use: "env", Short: "Print the variables of an app, on a developer's machine or in the cluster", Args: program.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := operator.SettingsOf(lookup)
			if err != nil {
				return &program.UsageError{Err: err}
			}
			if file == "" {
				return program.Usagef("--file: is not set, must be a file with an Application")
			}
			manifest, err := os.ReadFile(file)
			if err != nil {
				return program.Usagef("--file: %w", program.Unreadable(file, err))
			}
			text, err := settings.Environment(manifest, operator.Profile(profile))
			if errors.Is(err, operator.ErrNoApplication) {
				return program.Usagef("--file: is %q, must be a file with %w", program.Shown(file), err)
			} else if err != nil {
				return &program.UsageError{Err: err}
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	lookup = program.Settings(c.Flags(), services())
	c.Flags().StringVar(&profile, "profile", string(operator.Local), "local or remote")
	c.Flags().StringVarP(&file, "file", "f", "", "file with an Application")
	return c
}
