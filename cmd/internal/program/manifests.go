package program

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Manifests are what a program needs in its cluster.
type Manifests interface {
	YAML() (string, error)
}

// ManifestsCommand returns the command that prints manifests, a pointer whose fields the
// flags set. The caller adds the flags; they are not read from variables. With [Variable] a
// flag has the name of the variable that it makes: an error of YAML that names the variable
// then shows the flag. An error of YAML ends the command as a wrong flag does.
func ManifestsCommand(short string, manifests Manifests) *cobra.Command {
	return &cobra.Command{
		Use: "manifests", Short: short, Args: NoArgs, Annotations: map[string]string{annotationUnbound: "true"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkValues(c.Flags()); err != nil {
				return &UsageError{err}
			}
			text, err := manifests.YAML()
			if err != nil {
				return &UsageError{err}
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
	ObjectFlag(flags, authorities, "ca-config-map",
		"ConfigMap with certificates of authorities that are trusted beside the usual ones, such as a private one of the control plane (none)")
	ObjectFlag(flags, stateClaim, "state-claim", "PersistentVolumeClaim that keeps "+contents)
}

// ObjectFlag adds a flag for the name of an object of Kubernetes, which may be empty.
func ObjectFlag(flags *pflag.FlagSet, name *string, flag, usage string) {
	flags.Var((*objectName)(name), flag, usage)
}

// reference is an image reference, which needs no quoting in YAML.
type reference string

// referencePattern is the grammar of the OCI distribution specification: a registry, names, a tag, a digest.
// It is large, and a program that runs does not need it.
var referencePattern = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // constant
	return regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?` +
		`[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
		`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?$`)
})

func (r *reference) String() string { return string(*r) }
func (r *reference) Type() string   { return "string" }

func (r *reference) Set(text string) error {
	const most = 512
	if len(text) > most || !referencePattern().MatchString(text) {
		return errors.New("must be an image reference such as registry.example.com/name:tag or name@sha256: and 64 digits, without a scheme")
	}
	*r = reference(text)
	return nil
}

// objectName is the name of an object of Kubernetes, or empty.
type objectName string

var objectNamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`) // of at most 253 bytes

func (n *objectName) String() string { return string(*n) }
func (n *objectName) Type() string   { return "string" }

func (n *objectName) Set(text string) error {
	if text != "" && (len(text) > 253 || !objectNamePattern.MatchString(text)) {
		return errors.New("must be the name of an object: lower case letters, digits, dashes and dots")
	}
	*n = objectName(text)
	return nil
}
