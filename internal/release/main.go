package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is the release to build, from the flags.
type release struct {
	root      string // of the checkout
	out       string // folder for the output
	version   string
	programs  []string
	platforms []platform
	key       *ecdsa.PrivateKey // nil: nothing is signed
	log       io.Writer
}

// programs are all that people run.
func programs() []string {
	return []string{"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle", "trueup"}
}

// development is the version of images of no release.
const development = "latest"

var versions = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func run(ctx context.Context, args []string, log io.Writer) error {
	if len(args) == 0 || !slices.Contains([]string{"images", "archive", "tag", "cut", "push"}, args[0]) {
		return errors.New("call it as release cut, push, tag, archive or images; -h lists the flags")
	}
	r := release{log: log}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&r.root, "root", "../..", "folder of the checkout")
	flags.StringVar(&r.out, "out", "", "folder for the output (required)")
	flags.StringVar(&r.version, "version", development, "version such as v0.1.0")
	names := flags.String("programs", strings.Join(programs(), ","), "programs, separated by commas")
	everywhere := "linux/amd64,linux/arm64"
	key, push := "", ""
	if args[0] == "cut" || args[0] == "archive" {
		everywhere += ",darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"
		flags.StringVar(&key, "key", os.Getenv("TRUEUP_RELEASE_KEY"),
			"file of the private key that signs the checksums, ECDSA P-256 as PEM; default: $TRUEUP_RELEASE_KEY; none: they are not signed")
	}
	platforms := flags.String("platforms", everywhere, "platforms, separated by commas; images are for those of linux")
	if args[0] == "images" || args[0] == "push" {
		flags.StringVar(&push, "push", "", "repository that the images are pushed below, such as ghcr.io/team/trueup; none: they are only built")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if r.out == "" && args[0] != "tag" || flags.NArg() > 0 {
		return errors.New("--out: is required, and no argument is taken")
	}
	if r.version != development && !versions.MatchString(r.version) || args[0] != "images" && r.version == development {
		return fmt.Errorf("--version: is %q, must be a version such as v0.1.0", r.version)
	}
	for name := range strings.SplitSeq(*names, ",") {
		if !slices.Contains(programs(), name) {
			return fmt.Errorf("--programs: %q is none of %s", name, strings.Join(programs(), ", "))
		}
		r.programs = append(r.programs, name)
	}
	for name := range strings.SplitSeq(*platforms, ",") {
		system, architecture, ok := strings.Cut(name, "/")
		if !ok || system == "" || architecture == "" {
			return fmt.Errorf("--platforms: is %q, must be like linux/amd64", name)
		}
		r.platforms = append(r.platforms, platform{system, architecture})
	}
	switch {
	case args[0] == "tag":
		return r.cut(ctx, false)
	case args[0] == "push" && push == "":
		return errors.New("--push: is required, such as ghcr.io/team/trueup")
	case args[0] == "push":
		return r.push(ctx, push)
	}
	if key != "" {
		var err error
		if r.key, err = readKey(key); err != nil {
			return err
		}
	}
	if left, err := os.ReadDir(r.out); args[0] != "images" && err == nil && len(left) > 0 {
		return fmt.Errorf("--out: the folder %s has files, which would become part of the release: remove it", r.out)
	}
	switch args[0] {
	case "images":
		return r.images(ctx, push)
	case "cut":
		return r.cut(ctx, true)
	default:
		return r.archive(ctx)
	}
}
