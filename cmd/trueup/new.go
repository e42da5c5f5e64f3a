package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/scaffold"
)

// newCommand writes the files of a new operator. It asks no cluster.
func (o *options) newCommand() *cobra.Command {
	p := scaffold.Project{Version: program.Release()}
	c := &cobra.Command{
		Use: "new FOLDER --module example.com/sites --kind Site", Short: "Write a new operator that builds and passes its tests",
		Long: "Write a new operator into a folder: the kind with its definition, the function that returns its children, role, " +
			"Deployment, and tests on a real Kubernetes and in a simulated world.",
		Args: oneFolder,
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return program.Usagef("FOLDER: is empty, must be the folder to write")
			}
			if err := p.Check(); err != nil {
				return &program.UsageError{Err: err}
			}
			if err := p.Write(args[0]); err != nil {
				return &program.UsageError{Err: err}
			}
			return o.nextSteps(c, args[0], p)
		},
	}
	c.Flags().StringVar(&p.Module, "module", "", "path of the module; its last element names the operator")
	c.Flags().StringVar(&p.Kind, "kind", "", "kind of the objects, such as Site")
	c.Flags().StringVar(&p.Plural, "plural", "", "plural of the kind in lower case, such as boxes for Box (default as Kubernetes guesses it)")
	c.Flags().StringVar(&p.Group, "group", "example.com", "group of the kind: a domain of yours")
	return c
}

// nextSteps prints what builds and tests the operator. The modules of a development build are at no proxy.
func (*options) nextSteps(c *cobra.Command, folder string, p scaffold.Project) error {
	var text strings.Builder
	fmt.Fprintf(&text, "cd %s\n", folder)
	if p.Version == "" {
		text.WriteString("# This program is no release: say where a clone of its source is.\n")
		for _, module := range scaffold.Modules {
			at := filepath.Join("..", "trueup", module[len(scaffold.Modules[0]):])
			fmt.Fprintf(&text, "go mod edit -replace %s=%s\n", module, at)
		}
	}
	text.WriteString("go mod tidy\ngo test ./...    # the first time a Kubernetes is built, once: trueup cluster --build\n")
	_, err := fmt.Fprint(c.OutOrStdout(), text.String())
	return err
}

// oneFolder is the argument FOLDER.
func oneFolder(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return program.Usagef("%s: has %d arguments, must have one, the FOLDER to write", c.Name(), len(args))
	}
	return nil
}
