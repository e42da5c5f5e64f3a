package main

import (
	_ "embed"
	"regexp"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

//go:embed manifests.yaml
var manifestsTemplate string

var namespacePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

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
			if !namespacePattern.MatchString(values.Namespace) {
				return program.Usagef("--namespace: %q is not the name of a namespace", values.Namespace)
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
