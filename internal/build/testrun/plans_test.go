//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeGo puts a program go first in the path. It notes how it is called, lists two packages, and has all succeed.
// What it returns are the calls so far: the folder below the root, variables of Go that are not the run's, arguments.
func fakeGo(t *testing.T, root string) func() []string {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	script := `#!/bin/sh
at=${PWD#"` + root + `"}
echo ".$at GOWORK=${GOWORK##*/} GOTOOLCHAIN=$GOTOOLCHAIN GOGC=$GOGC go $*" >>"` + log + `"
[ "$1" = list ] && echo "` + module + `/apply ` + module + `/diff"
exit 0
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("GOWORK", filepath.Join(root, "go.work"))
	t.Setenv("GOTOOLCHAIN", "")
	t.Setenv("GOGC", "")
	return func() []string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// planned is a runner whose tests are none, and the packages of a workspace with each kind of tests.
func planned(t *testing.T) (r *runner, packages []string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	const long = "(t *testing.T) { if testing.Short() { t.Skip(\"long: so\") } }\n"
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n", "go.sum": "", "reconcile/controllerruntime/go.mod": "", "reconcile/controllerruntime/go.sum": "",
		"apply/a_test.go":             "package a\nfunc TestShort(t *testing.T) {}\nfunc TestFar" + long,
		"diff/a_test.go":              "package a\nfunc TestWorldInASimulatedWorld(t *testing.T) {}\n",
		"cmd/demo/a_test.go":          "package a\nfunc TestDemo" + long,
		undisturbed[0] + "/a_test.go": "package a\nfunc TestPage(t *testing.T) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	for _, folder := range slices.Concat(separate, comparisons) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	r = &runner{out: &bytes.Buffer{}, log: log, root: root, machine: machine{race: true}}
	return r, []string{module + "/apply", module + "/diff", module + "/cmd/demo", module + undisturbed[0][1:]}
}

// calledOnce finds the one call that a pattern describes.
func calledOnce(t *testing.T, calls []string, pattern string) {
	t.Helper()
	found := 0
	for _, call := range calls {
		if regexp.MustCompile("^(" + pattern + ")$").MatchString(call) {
			found++
		}
	}
	require.Equal(t, 1, found, "%s\nin\n%s", pattern, strings.Join(calls, "\n"))
}

//nolint:paralleltest // it sets variables
func TestTheRestIsEverythingThatQuickLeavesOut(t *testing.T) {
	r, packages := planned(t)
	calls := fakeGo(t, r.root)
	require.NoError(t, r.rest(t.Context(), packages))
	require.False(t, r.failed(), r.out)
	all := calls()
	const within, alone = `\. GOWORK=go\.work GOTOOLCHAIN= GOGC=`, ` GOWORK=off GOTOOLCHAIN= GOGC=`
	calledOnce(t, all, within+` go vet `+regexp.QuoteMeta(strings.Join(workspace(), " ")))
	calledOnce(t, all, `\.`+alone+` go vet \./\.\.\.`)
	calledOnce(t, all, within+` go test .* -race -short .* -skip=\S+InASimulatedWorld\S+ `+module+`/apply`)
	calledOnce(t, all, within+`400 go test .* -cpu=1 .* -run=\(InASimulatedWorld\|MayBeKilledAnywhere\)\$ `+module+`/diff`)
	calledOnce(t, all, within+`400 go test .* -run=\^\(TestDemo\|TestFar\)\$ `+module+`/apply `+module+`/cmd/demo`)
	calledOnce(t, all, within+` go test .* -p=1 .* -run=\^TestLatency\$ `+module+`/cmd/nodepool/operator`)
	for _, call := range all {
		require.False(t, strings.Contains(call, " -run=") && strings.Contains(call, " -short "), "%s: a test that is chosen runs in full", call)
	}
	calledOnce(t, all, `\.`+alone+` go list .* \./\.\.\.`)
	calledOnce(t, all, `\.`+alone+`400 go test .* -short .* `+module+`/diff`) // without those with a Kubernetes of their own
	for _, folder := range separate {
		calledOnce(t, all, `\./`+folder+alone+` go vet \./\.\.\.`)
		calledOnce(t, all, `\./`+folder+alone+` go test .* -short .* \./\.\.\.`)
	}
	for _, folder := range comparisons {
		calledOnce(t, all, `\./`+folder+alone+` go vet \./\.\.\.`)
		calledOnce(t, all, `\./`+folder+alone+` go test .* -short .* \./\.\.\.`)
	}
	calledOnce(
		t,
		all,
		`\. GOWORK=off GOTOOLCHAIN=local GOGC= go get -modfile=\S+ k8s\.io/client-go@`+newestMinor+` k8s\.io/apimachinery@`+newestMinor,
	)
	calledOnce(t, all, `\. GOWORK=off GOTOOLCHAIN=local GOGC= go vet -modfile=\S+ -mod=mod \./diff/\.\.\. \./apply/\.\.\. \./reconcile/\.\.\.`)
	calledOnce(t, all, `\. GOWORK=off GOTOOLCHAIN=local GOGC=400 go test .* -modfile=\S+ -mod=mod -short .* `+module+`/apply `+module+`/diff`)
	const manager = `\./reconcile/controllerruntime GOWORK=off GOTOOLCHAIN=local GOGC=`
	calledOnce(t, all, manager+` go get -modfile=\S+ sigs\.k8s\.io/controller-runtime@`+newestManager)
	calledOnce(t, all, manager+`400 go test .* -mod=mod -short .* \.`)
	calledOnce(t, all, `\. GOWORK=off GOTOOLCHAIN=`+newestGo+` GOGC=400 go test .* -short .* \./reconcile \./statesync .*`)
}

//nolint:paralleltest // it sets variables
func TestQuickRunsEachPackageThatHasShortTestsOnce(t *testing.T) {
	r, packages := planned(t)
	calls := fakeGo(t, r.root)
	require.NoError(t, r.quick(t.Context(), packages))
	all := calls()
	require.Len(t, all, 2, "cmd/demo has long ones alone")
	calledOnce(t, all, `.* GOGC=400 go test .* -short .* -p=1 `+regexp.QuoteMeta(module+undisturbed[0][1:]))
	calledOnce(t, all, `.* GOGC=400 go test .* -short .* -p=3 `+module+`/apply `+module+`/diff`)
	require.Equal(t, 1, r.left)
}
