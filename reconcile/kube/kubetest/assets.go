package kubetest

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
)

// Names of the programs and data files in an assets folder.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubectl           = "kubectl"
	kwok              = "kwok"
	kwokStages        = "kwok-stages.yaml"
	gatewayAPI        = "gateway-api.yaml"
)

// module is internal/kube, from which Kubernetes is built. A module in a folder of this one is no part of
// what its users download, so it is here under other names, which "make tidy" copies.
//
//go:embed module
var module embed.FS

// BuildAssets returns the folder with the programs of a Kubernetes control
// plane and the data files beside them, building it first when this machine has
// none of that version. Builders in other processes are waited for.
//
// The folder lies in TRUEUP_KUBE_CACHE, an absolute path, or else in the user's
// cache folder. Progress of a build is written to progress, a line every ten seconds.
// A build needs the go command and, for modules that the module cache lacks, a module
// proxy; with the folder there neither is asked.
func BuildAssets(ctx context.Context, progress io.Writer) (string, error) {
	r := modbuild.Recipe{Name: "kube", Version: regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`), Build: build}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := module.ReadFile("module/" + name + ".txt")
		if err != nil {
			return "", fmt.Errorf("kubetest: %w", err)
		}
		r.Files = append(r.Files, modbuild.File{Name: name, Content: content})
	}
	dir, err := r.Folder(ctx, progress)
	if err != nil {
		return "", fmt.Errorf("kubetest: %w", err)
	}
	return dir, nil
}

func build(ctx context.Context, b modbuild.Builder) error {
	start := time.Now()
	b.Say("building Kubernetes %s from Go modules; the first time takes 4 to 8 minutes on 2 cores", b.Version)
	if err := b.Compile(ctx, "kube", "-X k8s.io/component-base/version.gitVersion="+b.Version, "."); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer, controllerManager, scheduler, kubectl} {
		if err := os.Symlink("kube", filepath.Join(b.Dir, name)); err != nil {
			return err
		}
	}
	if err := b.Compile(ctx, kwok, "", "sigs.k8s.io/kwok/cmd/kwok"); err != nil {
		return err
	}
	if err := b.Join(ctx, kwokStages, "sigs.k8s.io/kwok",
		"kustomize/stage/node/fast/*.yaml", "kustomize/stage/node/heartbeat-with-lease/*.yaml", "kustomize/stage/pod/fast/*.yaml"); err != nil {
		return err
	}
	if err := b.Join(ctx, gatewayAPI, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_*.yaml"); err != nil {
		return err
	}
	b.Say("built in %s", time.Since(start).Round(time.Second))
	return nil
}

// programs finds each program, in KUBEBUILDER_ASSETS first.
type programs struct {
	preferred, built string
}

// findPrograms builds the assets only if the preferred folder lacks one of the
// names.
func findPrograms(ctx context.Context, progress io.Writer, names ...string) (programs, error) {
	preferred, err := modbuild.FolderVariable("KUBEBUILDER_ASSETS")
	if err != nil {
		return programs{}, fmt.Errorf("kubetest: %w", err)
	}
	found := programs{preferred: preferred}
	for _, name := range names {
		if found.preferred != "" && exists(filepath.Join(found.preferred, name)) {
			continue
		}
		built, err := BuildAssets(ctx, progress)
		found.built = built
		return found, err
	}
	return found, nil
}

func (p programs) path(name string) string {
	if path := filepath.Join(p.preferred, name); p.preferred != "" && exists(path) {
		return path
	}
	return filepath.Join(p.built, name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
