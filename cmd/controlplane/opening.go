package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
)

// openPatience is how long the database may take to open before that is said.
const openPatience = 3 * time.Second

// awaitDatabase opens the database, and waits until it can be read: a migration of another replica, or a dump, may
// have locked it. Meanwhile /healthz is 200, so that nothing ends the program while it waits, and all else 503.
// starting is called before anything is logged, and not for a database that cannot be opened at all.
func (o options) awaitDatabase(ctx context.Context, logger *slog.Logger, tlsConfig *tls.Config, starting func()) (*db.Database, error) {
	waiting, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.serveWaiting(waiting, logger, tlsConfig, starting)
	}()
	// Afterwards the address is free.
	defer func() { stop(); <-ended }()
	database, err := o.openDatabase(ctx)
	if err != nil {
		return nil, err
	}
	err = database.Ping(ctx)
	if ctx.Err() != nil {
		return nil, errors.Join(err, database.Close())
	}
	starting()
	if err != nil {
		// It is served as it is: /readyz has the check.
		logger.WarnContext(ctx, "database is not ready", slog.Any("error", err))
	}
	logger.InfoContext(ctx, "database opened", slog.String("database", database.Name()))
	return database, nil
}

// serveWaiting says that the program waits, if it still does after a moment, and listens until ctx ends.
func (o options) serveWaiting(ctx context.Context, logger *slog.Logger, tlsConfig *tls.Config, starting func()) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(openPatience):
	}
	starting()
	logger.WarnContext(ctx, "waiting for the database: it cannot be reached, or another program has locked its tables")
	handler := (&adminapi.API{Logger: logger}).Answer(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Retry-After", "1")
		return &adminapi.Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "the control plane waits for its database"}
	})
	server := &serve.Server{
		Address: o.listen, Handler: handler, TLS: tlsConfig, UnencryptedHTTP2: true, Logger: logger, Purpose: "start", StopTimeout: time.Second,
		Checks: []serve.Check{{Name: "database", Func: func(context.Context) error { return errors.New("waiting for it") }}},
	}
	if err := server.Start(ctx); err != nil {
		// The listener proper ends the program for the same.
		logger.WarnContext(ctx, "nothing is served while the program waits", slog.Any("error", err))
	}
}
