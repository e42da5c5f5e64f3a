package program

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// release is the version of a release, which its build sets.
var release string //nolint:gochecknoglobals // set by the linker

// unknown stands for missing build information.
const unknown = "unknown"

// Image returns the image of a program: the image of the running release, else the latest.
func Image(program string) string {
	version, _, _ := build()
	return "ghcr.io/seed-9e1ffd66/trueup/" + program + ":" + tag(version)
}

var (
	released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	// A version that the go command makes up for a commit ends like this: it has no image.
	pseudo = regexp.MustCompile(`[0-9]{14}-[0-9a-f]{12}$`)
)

// tag returns the tag of the images of a version. A program that "go install" has built knows
// its release as well as one of an archive.
func tag(version string) string {
	if released.MatchString(version) && !pseudo.MatchString(version) {
		return version
	}
	return "latest"
}

// Version returns the version of the running program: the version of the release or of the
// module, the commit if known, and the Go version.
func Version() string {
	version, revision, goversion := build()
	if goversion == "" {
		return unknown
	}
	parts := []string{version, revision, goversion}
	if revision == "" {
		parts = []string{version, goversion}
	}
	return strings.Join(parts, " ")
}

// build returns what the program was built from. Unknown parts are empty.
func build() (version, revision, goversion string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, "", ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return cmp.Or(release, info.Main.Version, "(devel)"), revision, info.GoVersion
}

// Release returns the version of the release that the running program is of, empty if of none.
func Release() string {
	version, _, _ := build()
	if tag(version) == "latest" {
		return ""
	}
	return version
}

// versionCommand prints the program's name and version.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return printVersion(command.Root()) },
	}
}

func printVersion(root *cobra.Command) error {
	_, err := fmt.Fprintln(root.OutOrStdout(), root.Name()+" "+Version())
	return err
}

// errVersion ends a command that was only asked for its version.
var errVersion = errors.New("asked for the version")

// versionFlag adds the flag --version. It goes before wrong arguments and wrong settings, as
// --help does. Cobra's own prints other words, and its template for ours would have the
// linker keep every method of every type: a third to two thirds of a program.
func versionFlag(root *cobra.Command) {
	flags, shorthand := root.Flags(), "v"
	if flags.Lookup("version") != nil {
		return
	}
	if flags.ShorthandLookup(shorthand) != nil {
		shorthand = ""
	}
	asked := flags.BoolP("version", shorthand, false, "version for "+root.Name())
	annotate(flags.Lookup("version"), cobra.FlagSetByCobraAnnotation, "true") // for the completion
	check := root.Args
	root.Args = func(c *cobra.Command, args []string) error {
		if *asked {
			return errVersion
		}
		if check == nil {
			return nil
		}
		return check(c, args)
	}
}
