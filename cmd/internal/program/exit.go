package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses of every program.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// UsageError is a flag, argument, environment variable or setting that is
// wrong. A program that returns one ends with [ExitUsage].
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a *[UsageError] with a text made as by fmt.Errorf.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// NoArgs is the Args of a command that takes none.
func NoArgs(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unknown command %q for %q", args[0], command.CommandPath())
	}
	return nil
}

// Run executes the command with args and returns the exit status. An error is
// written to stderr as one line that begins with the command's name; cobra
// itself writes neither the error nor the usage. Help goes to stdout.
func Run(ctx context.Context, command *cobra.Command, args []string, stdout, stderr io.Writer) int {
	command.SilenceErrors, command.SilenceUsage = true, true
	command.CompletionOptions.DisableDefaultCmd = true
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	line := strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")), " ")
	_, _ = fmt.Fprintln(stderr, command.Name()+": "+line) // a failed write has no reader left
	if _, ok := errors.AsType[*UsageError](err); ok {
		return ExitUsage
	}
	return ExitFailure
}

// VersionCommand returns the command that prints the program's name and
// version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(command.OutOrStdout(), command.Root().Name()+" "+Version())
			return err
		},
	}
}
