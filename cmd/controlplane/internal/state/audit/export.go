package audit

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// message marks an entry among the lines of a log.
const message = "audit"

// Export writes each entry that this process records from now on as a line of JSON, once its
// transaction is committed: the fields of an [Entry], and "msg":"audit". A line that cannot be
// written is an error in the log, and counted in failures unless that is nil; the entry is in
// the database all the same.
func Export(database *db.Database, to io.Writer, logger *slog.Logger, failures prometheus.Counter) {
	var mu sync.Mutex
	database.Notes = func(ctx context.Context, notes []any) {
		mu.Lock()
		defer mu.Unlock()
		for _, note := range notes {
			e, ok := note.(Entry)
			if !ok {
				continue
			}
			line, err := json.Marshal(struct {
				Message string `json:"msg"`
				Entry
			}{message, e})
			if err == nil {
				_, err = to.Write(append(line, '\n'))
			}
			if err != nil {
				if failures != nil {
					failures.Inc()
				}
				logger.ErrorContext(ctx, "audit entry not exported", slog.String("id", e.ID), slog.Any("error", err))
			}
		}
	}
}

// NewFailures returns a registered counter for [Export].
func NewFailures(registerer prometheus.Registerer) (prometheus.Counter, error) {
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trueup_controlplane_audit_export_failures_total",
		Help: "Entries of the audit that could not be written where --audit-log says; the database has them.",
	})
	return failures, registerer.Register(failures)
}

// File appends each write to the file of that name, which is made with mode 0600 if it is not
// there. It is opened for each: one that was moved away is created again.
type File string

// Write implements [io.Writer].
func (f File) Write(line []byte) (n int, err error) {
	file, err := os.OpenFile(string(f), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = file.Write(line)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return n, err
}
