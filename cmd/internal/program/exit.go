package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
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

// StatusError ends a program with a status of its own. Without an Err nothing is printed.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string { return fmt.Sprint(e.Err) }

func (e *StatusError) Unwrap() error { return e.Err }

// Main runs the command with the arguments of the process and ends the process. SIGTERM and
// SIGINT end the context of the command.
func Main(command *cobra.Command) {
	profiled := profile()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, command, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	profiled()
	os.Exit(code)
}

// Run executes the command with args and returns the exit status. An error is
// written to stderr as one line that begins with the command's name; cobra
// itself writes neither the error nor the usage. A *[StatusError] decides the status. A
// *[UsageError] names each setting by its
// flag or variable, whichever was used. Help goes to stdout. Run adds the commands
// version, man and, by cobra, completion, and to the command itself the flag --version.
func Run(ctx context.Context, command *cobra.Command, args []string, stdout, stderr io.Writer) int {
	command.SilenceErrors, command.SilenceUsage = true, true
	command.AddCommand(versionCommand(), manCommand())
	command.InitDefaultCompletionCmd(args...)
	command.SetHelpCommand(helpCommand())
	strict(command)
	versionFlag(command)
	command.SetFlagErrorFunc(func(called *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if wrong := wrongBefore(called); wrong != nil {
				return wrong
			}
			return unknownFlag(called, unknown)
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			err = wrongValue("--"+wrong.GetFlag().Name, wrong.GetFlag(), wrong.GetValue(), wrong.Unwrap())
		}
		return &UsageError{err}
	})
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	ran, err := command.ExecuteContextC(ctx)
	if errors.Is(err, errVersion) {
		err = printVersion(command)
	}
	if err == nil {
		return 0
	}
	text := err.Error()
	_, usage := errors.AsType[*UsageError](err)
	if usage {
		text = asUsed(ran, text)
	}
	status, own := errors.AsType[*StatusError](err)
	if own && status.Err == nil {
		return status.Status
	}
	line := strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")), " ")
	_, _ = fmt.Fprintln(stderr, command.Name()+": "+line) // a failed write has no reader left
	switch {
	case own:
		return status.Status
	case usage:
		return ExitUsage
	}
	return ExitFailure
}

// strict makes wrong arguments a *[UsageError] in the command and its subcommands, and an
// argument of a command that only has subcommands, such as "completion nonsense", too.
func strict(command *cobra.Command) {
	for _, sub := range command.Commands() {
		strict(sub)
	}
	if !command.Runnable() {
		command.Args = NoArgs
		command.RunE = func(c *cobra.Command, _ []string) error {
			var names []string
			for _, sub := range c.Commands() {
				names = append(names, sub.Name())
			}
			return Usagef("%s: is called without a subcommand, must have one of %s", c.CommandPath(), strings.Join(names, ", "))
		}
		return
	}
	check := command.Args
	if check == nil {
		return
	}
	command.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if _, ok := errors.AsType[*UsageError](err); err == nil || ok {
			return err
		}
		return &UsageError{err}
	}
}

// helpCommand prints the help of a command. Cobra's own ends with status 0 for an unknown one.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(command *cobra.Command, args []string) error {
			about, rest, err := command.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return Usagef("unknown command %q for %q", strings.Join(args, " "), command.Root().Name())
			}
			about.InitDefaultHelpFlag() // else it is not shown
			return about.Help()
		},
	}
}

// manCommand writes a page for each command of the program, or one in Markdown about all of them.
func manCommand() *cobra.Command {
	var markdown bool
	c := &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages into a folder that exists",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("man: has %d arguments, must have one, the folder of the pages", len(args))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Section: "1", Source: command.Root().Name() + " " + Version(), Manual: "trueup"}
			if at, err := os.Stat(args[0]); err != nil || !at.IsDir() {
				return Usagef("FOLDER: is %q, must be a folder that exists", Shown(args[0]))
			}
			if markdown {
				return markdownPage(command.Root(), args[0])
			}
			if err := doc.GenManTree(command.Root(), header, args[0]); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&markdown, "markdown", false, "write one page in Markdown, NAME.md, with the settings of all commands")
	return c
}

func markdownPage(root *cobra.Command, folder string) error {
	var page bytes.Buffer
	err := settingsPage(&page, root)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, root.Name()+".md"), page.Bytes(), 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		return fmt.Errorf("man: %w", err)
	}
	return nil
}
