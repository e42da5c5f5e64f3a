package program

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// release is the version of a release, which its build sets.
var release string //nolint:gochecknoglobals // set by the linker

// Image returns the image of a program: that of the running release, else the latest.
func Image(program string) string {
	return "ghcr.io/seed-9e1ffd66/trueup/" + program + ":" + cmp.Or(release, "latest")
}

// Version returns the version of the running program: that of the release or of the
// module, the commit if known, and the Go version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	parts := []string{cmp.Or(release, info.Main.Version, "(devel)")}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			parts = append(parts, setting.Value)
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}
