// Command kubebuild builds the Kubernetes that the tests and the demo run, or with the
// argument helm the Helm that tests install a chart with, so that the minutes show as
// progress instead of a silent test. It prints the folder of Kubernetes, in the form that
// KUBEBUILDER_ASSETS expects, or the path of helm.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

func main() {
	build := kubetest.BuildAssets
	if slices.Equal(os.Args[1:], []string{"helm"}) {
		build = kubetest.BuildHelm
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := build(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
