package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/remote"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

const (
	envPrefix = "TRUEUP_CONTROLPLANE_"
	// varGroupKeysVariable has secrets, so there is no flag for it.
	varGroupKeysVariable = envPrefix + "VAR_GROUP_KEYS"
)

func newRootCommand(lookupEnv func(string) (string, bool)) *cobra.Command {
	var opts options
	command := &cobra.Command{
		Use:   "controlplane",
		Short: "Serve the desired state of every cluster to its agent",
		Long: `Serve the desired state of every cluster to its agent.

The API, a page at /status, /healthz and /readyz are on --listen; /metrics is on
--metrics-bind-address.
Each flag has an environment variable as fallback: ` + envPrefix + `<FLAG>, such
as ` + envPrefix + `ADMIN_TOKEN_FILE. SIGTERM stops the program gracefully.`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			opts.varGroupKeys, _ = lookupEnv(varGroupKeysVariable)
			return opts.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&opts.listen, "listen", "127.0.0.1:8080", "address of the API, host:port")
	flags.StringVar(&opts.metricsAddress, program.MetricsFlag, "127.0.0.1:9090", "address of /metrics, host:port; empty for none")
	opts.databaseFlag(flags)
	flags.StringVar(
		&opts.adminTokenFile,
		"admin-token-file",
		"",
		"file with the tokens of the administrators, one a line, each of at least 128 bits, as openssl rand -hex 32 makes; read again while the program runs (required)",
	)
	flags.StringVar(
		&opts.agentTokenFile,
		"agent-token-file",
		"",
		"file with a token that opens ctrl.v1.ClusterService for every region, at least 128 bits; none: each agent needs the token of its region",
	)
	flags.DurationVar(
		&opts.agentTokenLifetime,
		"agent-token-lifetime",
		0,
		"how long the token of an agent is valid, at least 24h: its agent renews it in time, and at once if it was shown to a person, "+
			"which lives for a day at most; 0: tokens have no end, and agents do not renew them",
	)
	flags.StringVar(
		&opts.varGroupKeysFile,
		"var-group-keys-file",
		"",
		"file with the keys that encrypt the values of var groups, one a line: an id, a space, and 32 bytes in base64; the first encrypts; "+
			varGroupKeysVariable+" may have the lines instead; none: no var group can be put",
	)
	flags.StringVar(
		&opts.secondPerson,
		"second-person",
		"",
		"what two administrators, with names or signed in with OpenID Connect, must ask for, each by the same request, within an hour: some of "+
			strings.Join(second.Actions(), ", ")+", with commas between; none: one is enough",
	)
	opts.oidc.flags(flags)
	flags.StringVar(&opts.certFile, "tls-cert-file", "", "PEM file with the certificate of the API; turns on HTTPS")
	flags.StringVar(&opts.keyFile, "tls-private-key-file", "", "PEM file with the private key of the certificate")
	flags.StringVar(
		&opts.trustedProxies,
		"trusted-proxies",
		"",
		"addresses and networks, separated by commas, of proxies whose header X-Forwarded-For names the client in the log and the audit; none: the address of the connection is the client's",
	)
	program.LogLevelFlag(flags, &opts.logLevel)
	flags.DurationVar(
		&opts.snapshotRetention,
		"snapshot-retention",
		usage.RecordRetention,
		"how long billing records are kept, at least 48h; their sums are kept for --usage-retention",
	)
	flags.DurationVar(
		&opts.usageRetention,
		"usage-retention",
		usage.Retention,
		"how long the sums of billing records by day are kept, at least 72h",
	)
	flags.DurationVar(
		&opts.auditRetention,
		"audit-retention",
		audit.Retention,
		fmt.Sprintf(
			"how long the audit is kept, at least 24h; of each of its logs the newest %d entries are kept, those of agents and of refused credentials for %d days at most",
			audit.MaxEntries,
			audit.OutsideRetention/(24*time.Hour),
		),
	)
	opts.auditLogFlag(
		flags,
		"file that each entry of the audit is appended to, too, as a line of JSON; - for the output of the program; none: the database alone has them",
	)
	command.AddCommand(newManifestsCommand(), newBackupCommand(), newRestoredCommand())
	command.AddCommand(remote.Commands()...)
	program.Bind(command, envPrefix, lookupEnv)
	bound := command.PersistentPreRunE
	command.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := guessed(c, lookupEnv); err != nil {
			return err
		}
		return bound(c, args)
	}
	return command
}

// guessed returns an error for a variable that would have a token, which is in a file instead. Its value is not
// repeated.
func guessed(c *cobra.Command, lookupEnv func(string) (string, bool)) error {
	right := ""
	for _, flag := range []string{"token-file", "admin-token-file"} {
		if right == "" && c.Flags().Lookup(flag) != nil {
			right = envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		}
	}
	for _, name := range []string{"TOKEN", "TOKENS", "ADMIN_TOKEN", "ADMIN_TOKENS"} {
		if value, _ := lookupEnv(envPrefix + name); value != "" && right != "" {
			return program.Usagef("%s: is set, but tokens are in files: unset it, and set %s to the name of a file", envPrefix+name, right)
		}
	}
	return nil
}

func (o *options) auditLogFlag(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&o.auditLog, "audit-log", "", usage)
}

func (o *options) databaseFlag(flags *pflag.FlagSet) {
	flags.StringVar(
		&o.database,
		"database",
		"trueup.db",
		"path of the SQLite file, or sqlite://path, made if it is not there; or postgres://user:password@host:port/database, which several replicas may share",
	)
}
