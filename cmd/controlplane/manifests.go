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

var (
	namespacePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	imagePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)
)

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
			if !imagePattern.MatchString(values.Image) {
				return program.Usagef("--image: %q is not an image reference", values.Image)
			}
			parsed, err := template.New("manifests.yaml").Parse(manifestsTemplate)
			if err != nil {
				return err
			}
			return parsed.Execute(command.OutOrStdout(), values)
		},
	}
	command.Flags().StringVar(&values.Namespace, "namespace", "trueup-system", "namespace of the objects")
	command.Flags().StringVar(&values.Image, "image", program.Image("controlplane"), "image of the control plane")
	return command
}
