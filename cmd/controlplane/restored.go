package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// newRestoredCommand is for after an older copy of the database was put back.
func newRestoredCommand() *cobra.Command {
	var opts options
	var revokeAll bool
	command := &cobra.Command{
		Use:   "restored",
		Short: "Make every agent start over after the database was restored",
		Long: `Make every agent start over after the database was restored from a backup.

Every cluster gets a new epoch, and every region's log one. Agents then take over
the restored state although it is older than theirs, and delete nothing on the word
of one list.

The tokens of agents are those of the backup again: one that was rotated since is
valid again, and its successor is not. Tokens that had a successor when the backup
was made are revoked. With --audit-log FILE, the file of that flag of the control
plane (those of all replicas, one after the other), so are those that were rotated
after the backup and those of clusters and regions that were deleted after it. The
output of the program has the entries with --audit-log=-: save it, as a container
runtime or Docker keeps it or as kubectl logs prints it, and name that file. One
without an entry of this control plane is an error, and nothing is changed.
--revoke-tokens revokes all. An agent without a token keeps what runs, and gets a new
one with the request that is printed.

Run it once, on the restored database, before the control plane or while it runs. A
second run revokes no token that was made since, and costs a list for each agent. A database that is not there, or
that no control plane has made, is an error.`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return opts.restored(command.Context(), command.OutOrStdout(), revokeAll)
		},
	}
	opts.databaseFlag(command.Flags())
	opts.auditLogFlag(
		command.Flags(),
		"file of that flag of the control plane: tokens that were rotated after the backup are revoked; entries of this command are appended",
	)
	command.Flags().BoolVar(&revokeAll, "revoke-tokens", false, "revoke the tokens of all agents")
	return command
}

func (o options) restored(ctx context.Context, stdout io.Writer, revokeAll bool) (err error) {
	exported, err := o.readExport()
	if err != nil {
		return err
	}
	database, err := db.OpenExisting(ctx, o.database)
	if err != nil {
		return o.wrongDatabase(err)
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	ctx = audit.NewContext(ctx, audit.Restored)
	ended := func(_, _, _ string) bool { return false }
	if exported != nil {
		if err := exported.Compare(ctx, database); errors.Is(err, audit.ErrOtherAudit) {
			return wrong("audit-log", "%s: %w; nothing was changed", o.auditLog, err)
		} else if err != nil {
			return err
		}
		ended = exported.Ended
	}
	if err := o.exportAudit(database, stdout, slog.New(slog.NewTextHandler(stdout, nil)), nil); err != nil {
		return err
	}
	clusterStore, regionStore := &clusters.Store{Database: database}, &regions.Store{Database: database}
	if _, err := clusterStore.StartEpochs(ctx); err != nil {
		return err
	}
	if err := regionStore.StartLogEpoch(ctx); err != nil {
		return err
	}
	// Every replica is stopped, or will read the keys again.
	if err := clusterStore.ForgetKeys(ctx); err != nil {
		return err
	}
	revoke := func(kind string) func(id, mark string) bool {
		return func(id, mark string) bool { return revokeAll || ended(kind, id, mark) }
	}
	ofClusters, err := clusterStore.Agents().AfterRestore(ctx, revoke(audit.KindCluster))
	if err != nil {
		return err
	}
	ofRegions, err := regionStore.Agents().AfterRestore(ctx, revoke(audit.KindRegion))
	if err != nil {
		return err
	}
	var text strings.Builder
	if exported != nil {
		fmt.Fprintf(
			&text,
			"%s: %d entries of the audit were read, from %s to %s\n",
			o.auditLog,
			exported.Entries,
			exported.First.Format(time.RFC3339),
			exported.Last.Format(time.RFC3339),
		)
	}
	fmt.Fprintf(&text, "%s: %d clusters and %d regions have a new epoch\n", database.Name(), len(ofClusters), len(ofRegions))
	revoked := describe(&text, "clusters", ofClusters) + describe(&text, "regions", ofRegions)
	if left := len(ofClusters) + len(ofRegions) - revoked; left > 0 {
		fmt.Fprintf(
			&text,
			"%d tokens are those of the backup. One that was rotated after it is valid again, and its successor is not: rotate it.\n",
			left,
		)
	}
	_, err = io.WriteString(stdout, text.String())
	return err
}

// describe writes a line for each token, with the request that makes another.
func describe(text *strings.Builder, kind string, rows []agents.Restored) (revoked int) {
	for _, r := range rows {
		state := "token of the backup"
		switch {
		case r.Revoked:
			state = "token revoked      "
			revoked++
		case r.Superseded:
			state = "older token revoked"
		}
		fmt.Fprintf(text, "%s: POST %s%s/%s/rotate-token\n", state, adminapi.Prefix, kind, r.ID)
	}
	return revoked
}

// readExport returns what the file of the audit has about tokens, and nil without one.
func (o options) readExport() (*audit.Exported, error) {
	switch o.auditLog {
	case "":
		return nil, nil //nolint:nilnil // no file is not an error
	case "-":
		return nil, wrong("audit-log", "- is no file that can be read; write the output of the control plane to a file, and give its name")
	}
	file, err := os.Open(o.auditLog)
	if err != nil {
		return nil, wrong("audit-log", "%w", program.Unreadable(o.auditLog, err))
	}
	defer file.Close() //nolint:errcheck // it was read
	exported, err := audit.ReadExport(file)
	if err != nil {
		return nil, wrong("audit-log", "%s: %w", o.auditLog, err)
	}
	return exported, nil
}
