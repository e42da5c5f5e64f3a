package kubetest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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
	helm              = "helm"
	versitygw         = "versitygw"
)

// A recipe is what a module of internal, which stays outside of the workspace, is built
// into.
type recipe struct {
	module  string         // its folder in internal
	version *regexp.Regexp // of the line of go.mod whose version names the result
	files   []string       // what could change the result
	build   func(context.Context, builder) error
}

// BuildAssets returns the folder with the programs of a Kubernetes control
// plane and the data files beside them, building it first when this machine has
// none of that version. Builders in other processes are waited for.
//
// The folder lies in TRUEUP_KUBE_CACHE, an absolute path, or else in the user's
// cache folder. Progress of a build is written to progress, a line every ten seconds. The
// working directory must lie inside the trueup repository.
func BuildAssets(ctx context.Context, progress io.Writer) (string, error) {
	return recipe{
		module: "kube", version: regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`), files: []string{"go.mod", "go.sum", "main.go"},
		build: func(ctx context.Context, b builder) error { return b.build(ctx) },
	}.folder(ctx, progress)
}

// BuildHelm returns the path of the program helm, which it builds and keeps as
// BuildAssets does the programs of Kubernetes.
func BuildHelm(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := recipe{
		module: "helm", version: regexp.MustCompile(`helm\.sh/helm/v4 (v\S+)`), files: []string{"go.mod", "go.sum"},
		build: func(ctx context.Context, b builder) error {
			b.say("building Helm %s from Go modules; the first time takes 1 to 3 minutes on 2 cores", b.version)
			return b.compile(ctx, helm, "-X helm.sh/helm/v4/internal/version.version="+b.version, "helm.sh/helm/v4/cmd/helm")
		},
	}.folder(ctx, progress)
	return filepath.Join(dir, helm), err
}

// BuildVersitygw returns the path of the program versitygw, a server of S3, which it
// builds and keeps as BuildAssets does the programs of Kubernetes.
func BuildVersitygw(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := recipe{
		module: "versitygw", version: regexp.MustCompile(`versity/versitygw (v\S+)`), files: []string{"go.mod", "go.sum"},
		build: func(ctx context.Context, b builder) error {
			b.say("building versitygw %s from Go modules; the first time takes 1 to 3 minutes on 2 cores", b.version)
			return b.compile(ctx, versitygw, "", "github.com/versity/versitygw/cmd/versitygw")
		},
	}.folder(ctx, progress)
	return filepath.Join(dir, versitygw), err
}

// folder returns the folder of the build, and builds it if necessary.
func (r recipe) folder(ctx context.Context, progress io.Writer) (string, error) {
	source, err := findSource(r.module)
	if err != nil {
		return "", err
	}
	version, key, err := r.sourceVersion(source)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, r.module+"-"+version+"-"+key)
	if isDir(dir) {
		return dir, nil
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("kubetest: waiting for another build of %s: %w", dir, err)
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	work, err := workDir(dir)
	if err != nil {
		return "", fmt.Errorf("kubetest: cache folder: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // after the rename there is nothing left to remove
	if err := r.build(ctx, builder{source: source, version: version, work: work, progress: progress}); err != nil {
		return "", fmt.Errorf("kubetest: building %s %s: %w", r.module, version, err)
	}
	if err := os.Rename(work, dir); err != nil {
		return "", fmt.Errorf("kubetest: cache folder: %w", err)
	}
	return dir, nil
}

// workDir makes the folder that a build fills, and removes what killed builds
// of the same left. The caller holds the lock.
func workDir(dir string) (string, error) {
	prefix := dir + ".building-"
	left, err := filepath.Glob(prefix + "*")
	if err != nil {
		return "", err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(prefix)+"*")
}

type builder struct {
	source, version, work string
	progress              io.Writer
}

func (b builder) build(ctx context.Context) error {
	start := time.Now()
	b.say("building Kubernetes %s from Go modules; the first time takes 4 to 8 minutes on 2 cores", b.version)
	if err := b.compile(ctx, "kube", "-X k8s.io/component-base/version.gitVersion="+b.version, "."); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer, controllerManager, scheduler, kubectl} {
		if err := os.Symlink("kube", filepath.Join(b.work, name)); err != nil {
			return err
		}
	}
	if err := b.compile(ctx, kwok, "", "sigs.k8s.io/kwok/cmd/kwok"); err != nil {
		return err
	}
	if err := b.join(ctx, kwokStages, "sigs.k8s.io/kwok",
		"kustomize/stage/node/fast/*.yaml", "kustomize/stage/node/heartbeat-with-lease/*.yaml", "kustomize/stage/pod/fast/*.yaml"); err != nil {
		return err
	}
	if err := b.join(ctx, gatewayAPI, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_*.yaml"); err != nil {
		return err
	}
	b.say("built in %s", time.Since(start).Round(time.Second))
	return nil
}

func (b builder) say(format string, args ...any) {
	// A build does not fail for want of a reader.
	_, _ = fmt.Fprintf(b.progress, "kubetest: "+format+"\n", args...)
}

// compile runs go build with the package count as progress.
func (b builder) compile(ctx context.Context, name, ldflags, pkg string) error {
	cmd := b.goCommand(
		ctx,
		"build",
		"-v",
		"-trimpath",
		"-ldflags",
		strings.TrimSpace("-s -w "+ldflags),
		"-o",
		filepath.Join(b.work, name),
		pkg,
	)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { b.report(name, &compiled, done) })
	var last []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		compiled.Add(1)
		last = append(last, lines.Text())
		last = last[max(0, len(last)-20):]
	}
	err = cmd.Wait()
	close(done)
	reporter.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, strings.Join(last, "\n"))
	}
	return nil
}

func (b builder) report(name string, compiled *atomic.Int64, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			b.say("building %s: %d packages compiled, %s", name, compiled.Load(), time.Since(start).Round(time.Second))
		}
	}
}

// join writes the YAML files that the patterns match inside a module into one.
// A pattern that matches nothing is an error: the module has changed its layout.
func (b builder) join(ctx context.Context, name, module string, patterns ...string) error {
	dir, err := b.moduleDir(ctx, module)
	if err != nil {
		return err
	}
	var joined strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			return errors.Join(err, fmt.Errorf("%s: no file matches %s", module, pattern))
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			joined.WriteString("\n---\n")
			joined.Write(data)
		}
	}
	return os.WriteFile(filepath.Join(b.work, name), []byte(joined.String()), 0o600)
}

// moduleDir returns the folder of the module, which it downloads if need be: of
// a module that is used for its files alone, nothing was compiled before.
func (b builder) moduleDir(ctx context.Context, module string) (string, error) {
	out, err := b.goCommand(ctx, "mod", "download", "-json", module).Output()
	var downloaded struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &downloaded); jsonErr != nil || downloaded.Dir == "" {
		return "", fmt.Errorf("%s: %w", module, errors.Join(withStderr(err), jsonErr, errors.New("not downloaded: "+downloaded.Error)))
	}
	return downloaded.Dir, nil
}

func (b builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	return cmd
}

// findSource returns the folder of a module in internal, looking upwards from the
// working directory.
func findSource(module string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		source := filepath.Join(at, "internal", module)
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf(
				"kubetest: no internal/%s/go.mod at or above %s; run inside the trueup repository or set KUBEBUILDER_ASSETS",
				module,
				dir,
			)
		}
	}
}

// sourceVersion returns the version that the module pins, and a key that changes with
// anything that could change the build.
func (r recipe) sourceVersion(source string) (version, key string, err error) {
	digest := sha256.New()
	digest.Write([]byte(runtime.Version() + " " + runtime.GOOS + " " + runtime.GOARCH + "\n"))
	for _, name := range r.files {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", "", fmt.Errorf("kubetest: %w", err)
		}
		if name == "go.mod" {
			found := r.version.FindSubmatch(data)
			if found == nil {
				return "", "", fmt.Errorf("kubetest: %s/go.mod does not require %s", source, r.version)
			}
			version = string(found[1])
		}
		digest.Write(data)
	}
	return version, hex.EncodeToString(digest.Sum(nil))[:12], nil
}

func cacheDir() (string, error) {
	dir, err := folderVariable("TRUEUP_KUBE_CACHE")
	if err != nil {
		return "", err
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("kubetest: no cache folder: %w; set TRUEUP_KUBE_CACHE", err)
		}
		dir = filepath.Join(user, "trueup")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("kubetest: cache folder: %w", err)
	}
	return dir, nil
}

// programs finds each program, in KUBEBUILDER_ASSETS first.
type programs struct {
	preferred, built string
}

// folderVariable reads an environment variable that names a folder, or is empty.
// A relative path is an error: go test runs each package in a folder of its own.
func folderVariable(name string) (string, error) {
	dir := os.Getenv(name)
	if dir != "" && !filepath.IsAbs(dir) {
		return "", fmt.Errorf("kubetest: %s must be an absolute path, not %q", name, dir)
	}
	return dir, nil
}

// findPrograms builds the assets only if the preferred folder lacks one of the
// names.
func findPrograms(ctx context.Context, progress io.Writer, names ...string) (programs, error) {
	preferred, err := folderVariable("KUBEBUILDER_ASSETS")
	if err != nil {
		return programs{}, err
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

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// withStderr adds what the command wrote to its standard error.
func withStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
