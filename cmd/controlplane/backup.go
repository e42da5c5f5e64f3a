package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// newBackupCommand copies the database while the program runs.
func newBackupCommand() *cobra.Command {
	var opts options
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the SQLite database to a file while the control plane runs",
		Long: `Copy the SQLite database to a file while the control plane runs.

The copy is one state of the database, complete and checked; the file appears when it
is done, and must not be there before. cp makes no such copy: it misses what is still
in the write-ahead log. To put the copy back, stop the control plane, move the file in
the place of the database, remove the files of the same name that end in -wal and -shm,
run "controlplane restored", and start. A PostgreSQL is copied with its own tools.`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("FILE: is not set, must be the file that the copy is written to")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return opts.backup(command.Context(), args[0], command.OutOrStdout())
		},
	}
	opts.databaseFlag(command.Flags())
	return command
}

func (o options) backup(ctx context.Context, into string, stdout io.Writer) error {
	if at, err := os.Stat(filepath.Dir(into)); err != nil || !at.IsDir() {
		return program.Usagef("FILE: is %q, must be in a folder that exists", program.Shown(into))
	}
	err := db.Backup(ctx, o.database, into)
	if errors.Is(err, db.ErrNoBackup) {
		return wrong("database", "%w", err)
	}
	if err != nil {
		return o.wrongDatabase(err)
	}
	made, err := os.Stat(into)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d bytes\n", into, made.Size())
	return err
}
