package main

import (
	_ "embed"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

//go:embed manifests.yaml
var manifestsTemplate string

// manifests are the values of the template.
type manifests struct {
	Namespace, Image string
}

func newManifestsCommand() *cobra.Command {
	var values manifests
	command := &cobra.Command{
		Use:   "manifests",
		Short: "Print the Kubernetes objects of the control plane as YAML",
		Args:  program.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			// What passes here needs no quoting in YAML.
			if err := program.CheckNamespace("namespace", values.Namespace); err != nil {
				return &program.UsageError{Err: err}
			}
			parsed, err := template.New("manifests.yaml").Parse(manifestsTemplate)
			if err != nil {
				return err
			}
			return parsed.Execute(command.OutOrStdout(), values)
		},
	}
	command.Flags().StringVar(&values.Namespace, "namespace", "trueup-system", "namespace of the objects")
	program.ImageFlag(command.Flags(), &values.Image, "controlplane")
	return command
}
