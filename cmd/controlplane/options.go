package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/requestid"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// minAuditRetention is the least that --audit-retention may be.
const minAuditRetention = 24 * time.Hour

// minAgentTokenLifetime is the least that --agent-token-lifetime may be: agents that cannot renew for half
// of it, because the control plane is away, need new tokens.
const minAgentTokenLifetime = 24 * time.Hour

// options are the flags of the server.
type options struct {
	listen, metricsAddress string
	database               string
	adminTokenFile         string
	agentTokenFile         string
	agentTokenLifetime     time.Duration
	varGroupKeysFile       string
	varGroupKeys           string // from the environment, instead of the file
	certFile, keyFile      string
	trustedProxies         string
	secondPerson           string
	oidc                   oidcOptions
	logLevel               string
	snapshotRetention      time.Duration
	usageRetention         time.Duration
	auditRetention         time.Duration
	auditLog               string
}

// wrong returns a usage error that names the flag.
func wrong(flag, format string, args ...any) error {
	return program.Usagef("--%s: %w", flag, fmt.Errorf(format, args...))
}

// wrongFile returns a usage error for a flag whose file cannot be read, or holds what is wrong.
func wrongFile(flag, file string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		err = program.Unreadable(file, err)
	}
	return wrong(flag, "%w", err)
}

// run serves until ctx ends.
func (o options) run(ctx context.Context, log io.Writer) (err error) {
	logger, err := program.NewLogger(log, o.logLevel)
	if err != nil {
		return &program.UsageError{Err: err}
	}
	logger = slog.New(requestid.Logger(origin.Logger(logger.Handler())))
	proxies, err := origin.ParseProxies(o.trustedProxies)
	if err != nil {
		return wrong("trusted-proxies", "%w", err)
	}
	if err := o.checkAddresses(); err != nil {
		return err
	}
	if o.snapshotRetention < starbase.SnapshotMaxAge {
		return wrong(
			"snapshot-retention",
			"is %v, must be at least %v, the age of a record that is accepted",
			o.snapshotRetention,
			starbase.SnapshotMaxAge,
		)
	}
	if o.usageRetention < usage.MinRetention {
		return wrong("usage-retention", "is %v, must be at least %v, when the sums of a day are final", o.usageRetention, usage.MinRetention)
	}
	if o.auditRetention < minAuditRetention {
		return wrong("audit-retention", "is %v, must be at least %v", o.auditRetention, minAuditRetention)
	}
	if lifetime := o.agentTokenLifetime; lifetime != 0 && lifetime < minAgentTokenLifetime {
		return wrong("agent-token-lifetime", "is %v, must be at least %v, or 0 for tokens without an end", lifetime, minAgentTokenLifetime)
	}
	if o.adminTokenFile == "" {
		return wrong("admin-token-file", "is not set, must be a file with the tokens of the administrators")
	}
	bearer, err := o.token("agent-token-file", o.agentTokenFile)
	if err != nil {
		return err
	}
	admins := &tokens.File{Path: o.adminTokenFile, Logger: logger, Check: func(_ context.Context, token string) error {
		if token == bearer {
			return errors.New("is the token in --agent-token-file; administrators need another")
		}
		return nil
	}}
	if err := admins.Read(ctx); err != nil {
		return wrongFile("admin-token-file", o.adminTokenFile, err)
	}
	people, groups, err := o.oidc.people(ctx, logger)
	if err != nil {
		return err
	}
	twoPeople, err := o.twoPeople(admins.Admins())
	if err != nil {
		return err
	}
	keys, err := o.keys()
	if err != nil {
		return err
	}
	tlsConfig, err := o.tls()
	if err != nil {
		return err
	}
	database, err := o.awaitDatabase(ctx, logger, tlsConfig, sync.OnceFunc(func() {
		program.Starting(ctx, logger, slog.Any("administrators", tokens.Labels(admins.Admins())))
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	if alone, err := database.Alone(); err != nil {
		logger.WarnContext(ctx, "whether another control plane has the database is not known", slog.Any("error", err))
	} else if !alone {
		logger.WarnContext(ctx, "another control plane has this database open: run one on an SQLite file, or several on a PostgreSQL",
			slog.String("database", database.Name()))
	}

	registry := program.NewRegistry("controlplane")
	notSummed, err := usage.NewFailures(registry)
	if err != nil {
		return err
	}
	failures, err := audit.NewFailures(registry)
	if err != nil {
		return err
	}
	if err := o.exportAudit(database, log, logger, failures); err != nil {
		return err
	}
	attempts, err := guard.New(guard.Config{Logger: logger, Registerer: registry, Refused: func(ctx context.Context, endpoint string) {
		audit.Refuse(ctx, database, logger, endpoint)
	}})
	if err != nil {
		return err
	}
	shares, err := limits.New(limits.Config{Registerer: registry})
	if err != nil {
		return err
	}
	regionStore := &regions.Store{Database: database, TokenLifetime: o.agentTokenLifetime}
	clusterStore := &clusters.Store{Database: database, TokenLifetime: o.agentTokenLifetime, Keys: keys}
	noAgent := func(ctx context.Context, token string) error {
		return noAgents(ctx, token, clusterStore.Agents().Authenticate, regionStore.Agents().Authenticate)
	}
	noBearer := admins.Check
	admins.Check = noAgent
	if err := admins.CheckAll(ctx); errors.Is(err, errAgents) {
		return wrong("admin-token-file", "%w", err)
	} else if err != nil {
		return err
	}
	admins.Check = func(ctx context.Context, token string) error {
		if err := noBearer(ctx, token); err != nil {
			return err
		}
		return noAgent(ctx, token)
	}
	if err := clusterStore.KnowKeys(ctx); errors.Is(err, clusters.ErrNewKeyFirst) || errors.Is(err, clusters.ErrKeyMissing) {
		return wrong("var-group-keys-file", "%w", err)
	} else if errors.Is(err, db.ErrFull) {
		return fmt.Errorf("note the keys of var groups: %w: free space there, then start again", err)
	} else if err != nil {
		return err
	}
	n, err := clusterStore.Rekey(ctx)
	if n > 0 {
		logger.InfoContext(ctx, "var group values re-encrypted", slog.Int("values", n), slog.String("key", keys.Current()))
	}
	if err != nil {
		// What cannot be read holds back only the clusters that it belongs to.
		logger.ErrorContext(ctx, "var group values not re-encrypted", slog.String("key", keys.Current()), slog.Any("error", err))
	}
	changes := &audit.Log{Database: database, Retention: o.auditRetention, Logger: logger}
	used := &tokens.Uses{Database: database, Logger: logger}
	api, err := clusters.New(clusters.Config{
		Store:  clusterStore,
		Admins: admins.Admins,
		People: people,
		Used:   used,
		Second: &second.Person{Database: database, Admins: admins.Admins, People: people, Actions: twoPeople},
		AdminRoutes: slices.Concat(
			regions.AdminRoutes(regionStore), audit.Routes(changes), tokens.Routes(admins.Admins, used), usage.Routes(database),
		),
		AdminConditions: regions.AdminConditions(),
		OpenRoutes: agents.Renewal{
			Scopes: []agents.Scopes{clusterStore.Agents(), regionStore.Agents()}, Shared: bearer, Guard: attempts, Limits: shares,
		}.Routes(),
		Guard:      attempts,
		Limits:     shares,
		Logger:     logger,
		Registerer: registry,
	})
	if err != nil {
		return err
	}
	logMetrics := regions.NewLogMetrics(database.Log, logger)
	logMetrics.Observe()
	registry.MustRegister(logMetrics)
	feed := &statesync.Server{Log: database.Log, Logger: logger}
	streams, err := regions.New(
		regions.Config{
			Database: database, Feed: feed, Bearer: bearer, TokenLifetime: o.agentTokenLifetime,
			Guard: attempts, Limits: shares, Logger: logger, Registerer: registry,
		},
	)
	if err != nil {
		return err
	}
	page, err := statuspage.New(
		statuspage.Config{
			Database:      database,
			Admins:        admins.Admins,
			People:        people,
			Used:          used,
			Streams:       streams.Streams,
			StateBytes:    api.StateBytes,
			Log:           logMetrics.State,
			TokenLifetime: o.agentTokenLifetime,
			Guard:         attempts,
			Logger:        logger,
			Registerer:    registry,
		},
	)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(statuspage.Root, page)
	mux.Handle(statuspage.Path, page)
	mux.Handle(statuspage.Path+"/", page)
	streams.Mount(mux)
	mux.Handle(openapi.Path, openapi.Handler())
	mux.Handle("/", api)
	connections := origin.Strangers(logger)
	var metrics http.Handler // there is no path for it beside the API
	if o.metricsAddress != "" {
		metrics = program.Metrics(registry)
	}
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "tokens of administrators", Starter: admins},
		{Name: "change log", Starter: database.Log},
		{Name: "feed", Starter: feed},
		{Name: "status page", Starter: page},
		{Name: "revocation", Starter: streams},
		{Name: "streams of clusters", Starter: api},
		{Name: "audit", Starter: changes},
		{Name: "usage", Starter: &usage.Maintainer{
			Database: database, RecordRetention: o.snapshotRetention, Retention: o.usageRetention, Logger: logger, Failures: notSummed,
		}},
		{Name: "reconciler", Starter: &regions.Reconciler{Store: regionStore, Logger: logger, Registerer: registry}},
		{Name: "listener", Starter: &serve.Server{
			Address: o.listen, Handler: requestid.Handler(origin.Handler(mux, proxies)), UnencryptedHTTP2: true, TLS: tlsConfig, Logger: connections,
			Checks: []serve.Check{{Name: "database", Func: func(ctx context.Context) error {
				if err := database.Ping(ctx); err != nil {
					// The error may name paths; the log has it.
					connections.WarnContext(ctx, "database is not ready", slog.Any("error", err))
					if errors.Is(err, db.ErrReadOnly) {
						return db.ErrReadOnly
					}
					return errors.New("cannot be read")
				}
				return nil
			}}, {Name: "numbering", Func: logMetrics.Ready}},
			Purpose: "api", MetricsAddress: o.metricsAddress, Metrics: metrics,
		}},
	}}
	if groups != nil {
		group.Members = append(group.Members, reconcile.Member{Name: "groups of administrators", Starter: groups})
	}
	return program.Started(ctx, logger, &group)
}

// exportAudit has the entries of the audit written where --audit-log says.
func (o options) exportAudit(database *db.Database, output io.Writer, logger *slog.Logger, failures prometheus.Counter) error {
	switch o.auditLog {
	case "":
	case "-":
		audit.Export(database, output, logger, failures)
	default:
		file := audit.File(o.auditLog)
		if _, err := file.Write(nil); err != nil {
			return wrong("audit-log", "is %q, must be a file that can be written: %w", program.Shown(o.auditLog), program.Reason(err))
		}
		audit.Export(database, file, logger, failures)
	}
	return nil
}

func (o options) checkAddresses() error {
	for _, flag := range []struct{ name, value string }{{"listen", o.listen}, {program.MetricsFlag, o.metricsAddress}} {
		if flag.value == "" && flag.name == program.MetricsFlag {
			continue
		}
		if err := program.CheckAddress(flag.value); err != nil {
			return wrong(flag.name, "%w", err)
		}
	}
	if program.SameAddress(o.listen, o.metricsAddress) {
		return wrong(program.MetricsFlag, "is %q, must be %s", o.metricsAddress, program.OtherAddress)
	}
	return nil
}

// openDatabase opens the database of --database. Its errors never repeat a value
// that may carry a password.
func (o options) openDatabase(ctx context.Context) (*db.Database, error) {
	database, err := db.Open(ctx, o.database)
	return database, o.wrongDatabase(err)
}

// wrongDatabase returns the error, as a usage error if --database is what has to change.
func (o options) wrongDatabase(err error) error {
	switch {
	case errors.Is(err, db.ErrBadURL), errors.Is(err, db.ErrEmpty):
		return wrong("database", "%w", err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return wrong("database", "is %q, must be a file, in a folder that exists: %w", program.Shown(o.database), program.Reason(err))
	default:
		return err
	}
}
