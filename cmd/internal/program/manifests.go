package program

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Manifests are what a program needs in its cluster.
type Manifests interface {
	YAML() (string, error)
}

// ManifestsCommand returns the command that prints manifests, a pointer whose fields the
// flags set. The caller adds the flags; they have no variables.
func ManifestsCommand(short string, manifests Manifests) *cobra.Command {
	return &cobra.Command{
		Use: "manifests", Short: short, Args: NoArgs, Annotations: map[string]string{annotationUnbound: "true"},
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := manifests.YAML()
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

// AgentFlags add the flags of both agents: a ConfigMap with authorities, and a
// PersistentVolumeClaim, which keeps what contents names.
func AgentFlags(flags *pflag.FlagSet, authorities, stateClaim *string, contents string) {
	flags.StringVar(authorities, "ca-config-map", "",
		"ConfigMap with certificates of authorities that are trusted beside the usual ones, such as a private one of the control plane (none)")
	flags.StringVar(stateClaim, "state-claim", "", "PersistentVolumeClaim that keeps "+contents)
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
