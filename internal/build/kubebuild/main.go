// Command kubebuild builds the Kubernetes that the tests and the demo run, and the Helm
// that the tests install charts with, so that their minutes show as progress instead of
// a silent test. It prints the folder of Kubernetes, in the form that
// KUBEBUILDER_ASSETS expects.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	dir, err := kubetest.BuildAssets(ctx, os.Stderr)
	if err == nil {
		_, err = kubetest.BuildHelm(ctx, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
