// Command kubebuild builds the Kubernetes that the tests and the demo run, or with the
// argument helm the Helm that tests install a chart with, or with versitygw the server of S3
// that they store things in, so that the minutes show as progress instead of a silent
// test. It prints the folder of Kubernetes, in the form that KUBEBUILDER_ASSETS expects,
// or the path of the program.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func main() {
	build := kubetest.BuildAssets
	switch what := strings.Join(os.Args[1:], " "); what {
	case "":
	case "helm":
		build = modbuild.Helm
	case "versitygw":
		build = modbuild.Versitygw
	default:
		fmt.Fprintf(os.Stderr, "what to build: is %q, must be helm or versitygw, or nothing for Kubernetes\n", what)
		os.Exit(1)
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
