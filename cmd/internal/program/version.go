package program

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Version returns the version of the running program as the Go toolchain
// recorded it: the module version, the commit if known, and the Go version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	parts := []string{cmp.Or(info.Main.Version, "(devel)")}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			parts = append(parts, setting.Value)
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}
