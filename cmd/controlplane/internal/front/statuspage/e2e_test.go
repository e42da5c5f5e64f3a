//go:build unix

package statuspage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

const chromium = "/usr/bin/chromium"

// TestABrowserShowsThePageAsItIsAndAsItChanges runs e2e/page.test.js against the
// real program. With TRUEUP_SCREENSHOTS set to a folder, it leaves pictures there.
//
//nolint:paralleltest // a browser that waits for a processor shows nothing for a minute
func TestABrowserShowsThePageAsItIsAndAsItChanges(t *testing.T) {
	needBrowser(t)
	s := &site{t: t, url: "http://" + program(t, "--listen", "127.0.0.1:0"), tokens: map[string]string{}}
	s.seed()
	s.fill()
	browse(t, "page.test.js", "STATUS_URL="+s.url, "STATUS_TOKEN="+adminToken,
		"STATUS_CLUSTER="+clusterA, "STATUS_SERVICE="+servicePath(clusterA, 9), "STATUS_SCREENSHOTS="+os.Getenv("TRUEUP_SCREENSHOTS"))
}

// needBrowser ends the test where there is no browser.
func needBrowser(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		missing(t, "node is not installed")
	}
	if _, err := os.Stat(chromium); err != nil {
		missing(t, "Debian's package chromium is not installed")
	}
	if _, err := os.Stat("e2e/node_modules/playwright-core"); err != nil {
		missing(t, "run npm ci in cmd/controlplane/internal/front/statuspage/e2e")
	}
}

// browse runs a file of e2e with these variables.
func browse(t *testing.T, file string, variables ...string) {
	t.Helper()
	// Not a TempDir of the test: a browser may write to it to the very end.
	profile, err := os.MkdirTemp("", "statuspage") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", file)
	command.Dir = "e2e"
	// Node and the browsers that it started go together.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 10 * time.Second
	command.Env = append(os.Environ(), append(variables, "STATUS_CHROMIUM="+chromium, "STATUS_PROFILE="+profile)...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	t.Logf("%s", output)
}

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("TRUEUP_REQUIRE_SERVICES") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// program runs the control plane with these flags, too, and returns its address.
func program(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	binary, token := programs.Path(t, "controlplane"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte(adminToken), 0o600))
	command := exec.CommandContext(
		context.WithoutCancel(t.Context()),
		binary,
		append([]string{
			"--metrics-bind-address", "", "--database", filepath.Join(dir, "trueup.db"), "--admin-token-file", token,
		}, more...)...,
	)
	log, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	address := make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				address <- line.Address
				break
			}
		}
		_, _ = io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		<-ended
		require.NoError(t, command.Wait(), "it stops although somebody was watching")
	})
	select {
	case found := <-address:
		return found
	case <-ended:
		t.Fatal("the program ended")
	case <-time.After(time.Minute):
		t.Fatal("the program does not listen")
	}
	return ""
}
