package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase/server"
)

// newRestoredCommand is for after an older copy of the database was put back.
func newRestoredCommand(lookupEnv func(string) (string, bool)) *cobra.Command {
	var opts options
	command := &cobra.Command{
		Use:   "restored",
		Short: "Make every agent start anew after the database was restored",
		Long: `Make every agent start anew after the database was restored from a backup.

Every cluster gets a new epoch, and every region's log one. Agents then take over
the restored state although it is older than theirs, and delete nothing on the word
of one list. Run it once, on the restored database, before the control plane or
while it runs. Running it without need costs a list for each agent.`,
		Args: program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			if opts.fromEnv, err = fromEnv(command.Flags(), lookupEnv); err != nil {
				return err
			}
			return opts.restored(command.Context(), command.OutOrStdout())
		},
	}
	opts.databaseFlag(command.Flags())
	return command
}

func (o options) restored(ctx context.Context, stdout io.Writer) (err error) {
	database, err := o.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	ctx = audit.NewContext(ctx, "command/restored")
	clusters, err := (&server.Store{Database: database}).StartEpochs(ctx)
	if err != nil {
		return err
	}
	store := &cluster.Store{Database: database}
	if err := store.StartLogEpoch(ctx); err != nil {
		return err
	}
	regions, err := store.Regions(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d clusters and %d regions have a new epoch\n", database.Name(), clusters, len(regions))
	return err
}
