package program

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ManifestsCommand returns the command that prints what a program needs in its cluster.
// yaml is called after the flags are read, which the caller adds; they have no variables.
func ManifestsCommand(short string, yaml func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: "manifests", Short: short, Args: NoArgs, Annotations: map[string]string{annotationUnbound: "true"},
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := yaml()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
}

// ImageFlag adds the flag for the image of a program: an image reference, by default
// [Image].
func ImageFlag(flags *pflag.FlagSet, image *string, program string) {
	*image = Image(program)
	flags.Var((*reference)(image), "image", "container image")
}

// reference is an image reference that needs no quoting in YAML.
type reference string

var referencePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)

func (r *reference) String() string { return string(*r) }
func (r *reference) Type() string   { return "string" }

func (r *reference) Set(text string) error {
	if !referencePattern.MatchString(text) {
		return fmt.Errorf("%.80q is no image reference; want one like registry.example.com/name:tag", text)
	}
	*r = reference(text)
	return nil
}
