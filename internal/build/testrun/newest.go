package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The newest minors of client-go and of controller-runtime. The last patch of each is tested. Each go.mod
// requires the oldest minor that upstream supports.
const (
	newestMinor   = "v0.37"
	newestManager = "v0.25"
)

// newest tests what uses client-go, or controller-runtime, with its newest minor.
func (r *runner) newest(ctx context.Context) error {
	err := r.newer(ctx, "client-go "+newestMinor, ".",
		[]string{"k8s.io/client-go@" + newestMinor, "k8s.io/apimachinery@" + newestMinor},
		"./diff/...", "./apply/...", "./reconcile/...")
	if err != nil {
		return err
	}
	return r.newer(ctx, "controller-runtime "+newestManager, "reconcile/controllerruntime",
		[]string{"sigs.k8s.io/controller-runtime@" + newestManager}, ".")
}

// newer tests packages of the module in a folder with newer modules, by a go.mod in a folder that
// goes.
func (r *runner) newer(ctx context.Context, name, at string, modules []string, patterns ...string) (err error) {
	dir, err := os.MkdirTemp("", "testrun-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(r.root, at, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	mod := filepath.Join(dir, "go.mod")
	modfile, env := "-modfile="+mod, []string{"GOWORK=off", "GOTOOLCHAIN=local"}
	if at != "." { // without the workspace, nothing says where the modules are that it needs of this one
		here := func(path string) string { return "-replace=" + module + path + "=" + filepath.Join(r.root, path) }
		r.command(ctx, "modules for "+name, at, env, "go", "mod", "edit", here(""), here("/reconcile/operatormetrics"), mod)
	}
	r.command(ctx, name, at, env, append([]string{"go", "get", modfile}, modules...)...)
	r.command(ctx, "vet with "+name, at, env, append([]string{"go", "vet", modfile, "-mod=mod"}, patterns...)...)
	packages := patterns
	if at == "." {
		if packages, err = r.list(ctx, env, patterns...); err != nil {
			return err
		}
		// The simulated world asks nothing of a client that the tests with real servers do not ask.
		packages = slices.DeleteFunc(packages, func(pkg string) bool { return short(pkg) == "./reconcile/simtest" })
	}
	r.test(
		ctx,
		step{
			name:     "with " + name,
			dir:      at,
			env:      append(env, seldomCollected...),
			flags:    []string{modfile, "-mod=mod", "-short", linked, "-p=3", "-parallel=8", "-timeout=20m"},
			packages: packages,
		},
	)
	return nil
}

// newestGo is the newest minor of Go, which the go command fetches. go.mod requires the one before.
const newestGo = "go1.27.2"

// newestGo tests the packages that need no other module with the newest Go.
func (r *runner) newestGo(ctx context.Context) {
	env := []string{"GOWORK=off", "GOTOOLCHAIN=" + newestGo}
	if out, err := r.prepare(ctx, "", env, []string{"go", "version"}).CombinedOutput(); err != nil {
		r.machine.missing = append(r.machine.missing, newestGo+", which go fetches from GOPROXY: "+strings.TrimSpace(string(out)))
		return
	}
	r.test(
		ctx,
		step{
			name:     "with " + newestGo,
			env:      append(slices.Clone(env), seldomCollected...),
			flags:    []string{"-short", linked, "-timeout=10m"},
			packages: []string{"./reconcile", "./statesync", "./snapshot", "./cloud", "./cloud/demand", "./apply/budget"},
		},
	)
	// Of the others only what needs no half a Kubernetes to be compiled once more.
	r.command(ctx, "vet with "+newestGo, "", env, "go", "vet", "./diff/...")
}
