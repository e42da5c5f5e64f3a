package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// consumers are the packages that a program of others imports, by the folder of the module.
func consumers() map[string]string {
	return map[string]string{
		".": "apply", "cloud/aws": "", "cmd": "api/ctrl/v1", "examples": "hello", "reconcile/controllerruntime": "",
		"reconcile/operatormetrics": "", "reconcile/tracing": "", "reconcile/simtest/upstream": "", "statesync/sqlstore": "",
	}
}

// TestModulesFromALocalProxy publishes a release to a module proxy that is a folder, and
// gets each module from it as its users will: into an empty folder, without a workspace.
// Other modules come from the usual proxy. The version is new in each run, so that the cache
// of modules, which would take gigabytes to fill again, can be the usual one.
func TestModulesFromALocalProxy(t *testing.T) {
	t.Parallel()
	compiles(t)
	version := "v0.1.0-door." + strconv.FormatInt(time.Now().UnixNano(), 36)
	root := checkout(t)
	require.NoError(t, run(t.Context(), []string{"tag", "--root", root, "--version", version}, t.Output()))
	proxy := publish(t, root, version)
	user := user{t: t, env: append(
		os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB="+trueup, "GOPRIVATE=", "GONOPROXY=",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+usualProxy(t),
	)}
	t.Cleanup(func() { forget(t, version) })

	count := 0
	for dir, pkg := range consumers() {
		m := module.Version{Path: strings.TrimSuffix(trueup+"/"+dir, "/."), Version: version}
		folder := t.TempDir()
		user.goes(folder, "mod", "init", "example.com/consumer")
		user.goes(folder, "get", m.Path+"@"+version)
		switch dir {
		case ".":
			hello, err := os.ReadFile(filepath.Join(root, "examples/hello/main.go"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), hello, 0o600))
			user.goes(folder, "get", "sigs.k8s.io/controller-runtime@"+required(t, root, "examples", "sigs.k8s.io/controller-runtime"))
			user.goes(folder, "build", "-mod=mod", "-o", filepath.Join(folder, "hello"), ".")
		case "examples":
			for _, example := range []string{"hello", "converge", "loop", "operator", "embed"} {
				user.goes(folder, "build", "-mod=mod", "-o", filepath.Join(folder, "example"), m.Path+"/"+example)
			}
		default:
			text := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", path.Join(m.Path, pkg))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o600))
			user.goes(folder, "build", "-mod=mod", "-o", filepath.Join(folder, "program"), ".")
		}
		file, err := readMod(folder)
		require.NoError(t, err)
		for _, require := range file.Require {
			if strings.HasPrefix(require.Mod.Path, trueup) && require.Mod.Version != version {
				t.Errorf("a user of %s gets %s", m, require.Mod)
			}
		}
		count++
	}
	bin := t.TempDir()
	installing := user
	installing.env = append(installing.env, "GOBIN="+bin)
	installing.goes(bin, "install", trueup+"/cmd/trueup@"+version)
	printed, err := exec.CommandContext(t.Context(), filepath.Join(bin, "trueup"), "version").Output()
	require.NoError(t, err)
	require.Contains(t, string(printed), "trueup "+version+" ")

	// Who takes the tag to work on it has the lines of go.sum that the build needs.
	inRepo(t, root, "checkout", "--quiet", version)
	user.goes(filepath.Join(root, "cmd"), "build", "-mod=readonly", "-o", filepath.Join(bin, "own"), "./trueup")
	fmt.Printf("figure door_modules_from_local_proxy %d count\n", count) //nolint:forbidigo // make door reads it
}

// user is a person with a go command.
type user struct {
	t   *testing.T
	env []string
}

func (u user) goes(dir string, args ...string) {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, u.env
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	u.t.Logf("go %s: %.0f s", strings.Join(args, " "), time.Since(begun).Seconds())
	require.NoError(u.t, err, "go %s\n%s", strings.Join(args, " "), out)
}

func usualProxy(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func required(t *testing.T, root, dir, path string) string {
	t.Helper()
	file, err := readMod(filepath.Join(root, dir))
	require.NoError(t, err)
	for _, require := range file.Require {
		if require.Mod.Path == path {
			return require.Mod.Version
		}
	}
	t.Fatalf("%s/go.mod does not require %s", dir, path)
	return ""
}

// publish writes the modules of the tags as a module proxy has them.
func publish(t *testing.T, root, version string) (proxy string) {
	t.Helper()
	proxy = t.TempDir()
	r := release{root: root}
	modules, err := r.parts(t.Context())
	require.NoError(t, err)
	require.Len(t, modules, len(consumers()))
	for _, m := range modules {
		escaped, err := module.EscapePath(m.path)
		require.NoError(t, err)
		dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		tag := m.tag(version)
		mod := inRepo(t, root, "show", tag+":"+path.Join(m.dir, "go.mod")) + "\n"
		_, err = modfile.Parse("go.mod", []byte(mod), nil)
		require.NoError(t, err)
		info, err := json.Marshal(map[string]string{"Version": version, "Time": inRepo(t, root, "log", "-1", "--format=%cI", tag)})
		require.NoError(t, err)
		for name, text := range map[string]string{"list": version + "\n", version + ".info": string(info), version + ".mod": mod} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		into, err := os.Create(filepath.Join(dir, version+".zip"))
		require.NoError(t, err)
		require.NoError(t, m.write(into, root, version, tag))
		require.NoError(t, into.Close())
	}
	return proxy
}

// forget removes the modules of a test from the cache.
func forget(t *testing.T, version string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	cache := strings.TrimSpace(string(out))
	for dir := range consumers() {
		escaped, err := module.EscapePath(strings.TrimSuffix(trueup+"/"+dir, "/."))
		require.NoError(t, err)
		unpacked := filepath.Join(cache, filepath.FromSlash(escaped)+"@"+version)
		downloaded, err := filepath.Glob(filepath.Join(cache, "cache/download", filepath.FromSlash(escaped), "@v", version+".*"))
		require.NoError(t, err)
		for _, name := range append(downloaded, unpacked) {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	}
}
