package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase/server"
)

const envPrefix = "TRUEUP_CONTROLPLANE_"

func newRootCommand(lookupEnv func(string) (string, bool)) *cobra.Command {
	var opts options
	command := &cobra.Command{
		Use:   "controlplane",
		Short: "Serve the desired state of every cluster to its agent",
		Long: `Serve the desired state of every cluster to its agent.

The API, a page at /status, /healthz and /readyz are on --listen; /metrics is on
--metrics-listen.
Each flag has an environment variable as fallback: ` + envPrefix + `<FLAG>, such
as ` + envPrefix + `ADMIN_TOKEN_FILE. SIGTERM stops the program gracefully.`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			if opts.fromEnv, err = fromEnv(command.Flags(), lookupEnv); err != nil {
				return err
			}
			opts.varGroupKeys, _ = lookupEnv(envName("var-group-keys"))
			return opts.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&opts.listen, "listen", "127.0.0.1:8080", "address of the API, host:port")
	flags.StringVar(&opts.metricsListen, "metrics-listen", "127.0.0.1:9090", "address of /metrics, host:port; empty for none")
	opts.databaseFlag(flags)
	flags.StringVar(&opts.adminTokenFile, "admin-token-file", "", "file with the tokens of the administrators, one a line, each of at least 16 bytes; read again while the program runs (required)")
	flags.StringVar(&opts.agentTokenFile, "agent-token-file", "", "file with a token that opens ctrl.v1.ClusterService for every region, at least 16 bytes; none: each agent needs the token of its region")
	flags.StringVar(&opts.varGroupKeysFile, "var-group-keys-file", "", "file with the keys that encrypt the values of var groups, one a line: an id, a space, and 32 bytes in base64; the first encrypts; "+
		envName("var-group-keys")+" may have the lines instead; none: no var group can be put")
	flags.StringVar(&opts.certFile, "tls-cert-file", "", "PEM file with the certificate of the API; turns on HTTPS")
	flags.StringVar(&opts.keyFile, "tls-private-key-file", "", "PEM file with the private key of the certificate")
	flags.StringVar(&opts.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.DurationVar(&opts.snapshotRetention, "snapshot-retention", server.SnapshotRetention, "how long billing records are kept, at least 48h")
	flags.DurationVar(&opts.auditRetention, "audit-retention", audit.Retention, fmt.Sprintf("how long the audit of changes is kept, at least 24h; of more than %d entries the newest are kept", audit.MaxEntries))
	command.AddCommand(program.VersionCommand(), newManifestsCommand(), newBackupCommand(lookupEnv), newRestoredCommand(lookupEnv))
	return command
}

func (o *options) databaseFlag(flags *pflag.FlagSet) {
	flags.StringVar(&o.database, "database", "trueup.db", "path of the SQLite file, or sqlite://path, made if it is not there; or postgres://user:password@host:port/database, which several replicas may share")
}

// fromEnv sets each flag that was not given from its environment variable, and
// returns the flags it has set. A variable that is empty counts as not set.
func fromEnv(flags *pflag.FlagSet, lookupEnv func(string) (string, bool)) (map[string]bool, error) {
	set := map[string]bool{}
	var failure error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, ok := lookupEnv(envName(flag.Name))
		if flag.Changed || !ok || value == "" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil && failure == nil {
			failure = program.Usagef("%s: %w", envName(flag.Name), err)
		}
		set[flag.Name] = true
	})
	return set, failure
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
