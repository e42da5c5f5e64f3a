package serve

import (
	"cmp"
	"runtime/debug"
)

// Version returns the version of the running program as the Go toolchain
// recorded it: the module version, the commit if known, and the Go version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := cmp.Or(info.Main.Version, "(devel)")
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			version += " " + setting.Value
		}
	}
	return version + " " + info.GoVersion
}
