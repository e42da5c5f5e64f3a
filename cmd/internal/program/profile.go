//go:build profile

package program

import (
	"fmt"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // only in programs that are built with the tag
	"os"
	"runtime/pprof"
)

// profile lets "make profiles" look into a program that is built with -tags profile; a released
// one has none of it. TRUEUP_PPROF is an address that serves /debug/pprof. TRUEUP_CPU_PROFILE is a
// file that gets the CPU profile of the whole process when the returned function is called.
func profile() (stop func()) {
	address, path := os.Getenv("TRUEUP_PPROF"), os.Getenv("TRUEUP_CPU_PROFILE")
	for _, variable := range []string{"TRUEUP_PPROF", "TRUEUP_CPU_PROFILE"} {
		_ = os.Unsetenv(variable) // not for the processes that this one starts; a name that can be unset
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(ExitUsage)
	}
	if address != "" {
		go func() { fail(http.ListenAndServe(address, nil)) }() //nolint:gosec // as above
	}
	if path == "" {
		return func() {}
	}
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fail(err)
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			fail(err)
		}
	}
}
