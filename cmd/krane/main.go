// Command krane is the agent of a region: it follows the streams of the control
// plane, makes its cluster as they say, and reports what runs. "krane --help"
// lists its settings.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/manifests"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
		return
	case errors.Is(err, flag.ErrHelp):
		return
	}
	fmt.Fprintln(os.Stderr, "krane:", err)
	if _, ok := errors.AsType[*failure](err); ok {
		os.Exit(exitFailure)
	}
	os.Exit(exitUsage)
}

// failure is an error of the run, not of the call.
type failure struct{ error }

func command(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "version":
			_, err := fmt.Fprintln(out, version())
			return err
		case "manifests":
			return printManifests(args[1:], out)
		}
	}
	flags := flag.NewFlagSet("krane", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { _, _ = fmt.Fprint(out, help) }
	file := flags.String("config", "", "")
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "")
	level := flags.String("log-level", "info", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown command %q; krane --help lists them", flags.Arg(0))
	}
	var least slog.Level
	if err := least.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", *level)
	}
	c, err := config.Load(*file, os.Getenv)
	if err != nil {
		return err
	}
	access, err := cluster(*kubeconfig)
	if err != nil {
		return fmt.Errorf("access to Kubernetes: %w (--kubeconfig names a file for use outside a cluster)", err)
	}
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: least})).With(
		slog.String("instance", c.InstanceID), slog.String("region", c.Cluster.Region))
	a := agent.Agent{Config: c, Kubernetes: access, Logger: logger}
	if err := a.Start(ctx); err != nil {
		return &failure{err}
	}
	return nil
}

func cluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

func printManifests(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("krane manifests", flag.ContinueOnError)
	flags.SetOutput(out)
	var m manifests.Manifests
	flags.StringVar(&m.Image, "image", "ghcr.io/seed-9e1ffd66/trueup/krane:latest", "container image")
	flags.StringVar(&m.ControlURL, "control-url", "https://control.example.com", "URL of the control plane")
	flags.StringVar(&m.Region, "region", "eu-central-1", "region of the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := m.YAML()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, text)
	return err
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	parts := []string{info.Main.Version}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			parts = append(parts, setting.Value)
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}

const help = `Follow the streams of the control plane, make this cluster as they say, and
report what runs.

Usage:
  krane [--config FILE] [--kubeconfig FILE] [--log-level LEVEL]
  krane manifests [--image IMAGE] [--control-url URL] [--region REGION]
  krane version

Flags:
  --config FILE      settings as YAML; variables of the environment go before it
  --kubeconfig FILE  access to Kubernetes (KUBECONFIG; none: the pod's account)
  --log-level LEVEL  debug, info, warn or error (info)

Settings, each also as a variable, such as KRANE_CONTROL_URL for control.url:
  instance_id              name of this process (HOSTNAME)
  cluster.region           region of this cluster (required)
  cluster.platform         what the region is on
  cluster.cell_id          names one of several agents of a region
  control.url              URL of the control plane (required)
  control.token            token for it; or
  token_file               file that holds it, read anew for each call
  rpc_port                 port of /healthz, /readyz and /metrics (8070)
  vault.url, vault.token   service that decrypts variables; or
  vault.key_file           file that holds keys
  registry.url, registry.username, registry.password
                           where images are pulled from
  storage_class_name       class of scratch volumes (ebs-csi-gp3)
  runtime_class            runtime class of pods (gvisor)
  state_dir                reserved; the agent lists everything at its start
  max_delete_percent       share of what is absent that may go within 5 minutes (10; at least 5)
  k8s.qps, k8s.burst       bounds of requests to Kubernetes (100, 200)

A setting that is missing or wrong ends the program with status 2.
`
