// Package keycloaktest runs a Keycloak for tests, in a process of its own that ends with
// the test and keeps everything in memory. It is installed once, from Maven Central, into
// the cache folder, and needs a Java.
package keycloaktest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// The administrator of every Keycloak of tests.
const (
	User     = "admin"
	Password = "the-keycloak-password-of-the-tests"
)

// ErrNotInstalled is a machine on which Keycloak cannot be installed.
var ErrNotInstalled = errors.New("no Keycloak: it needs java 17 or newer and Maven Central (Debian: apt-get install default-jre-headless)")

// startLimit bounds the start. It takes 22 seconds of a processor, and as much longer as other
// work leaves it less of one.
const startLimit = 12 * time.Minute

// Server is a running Keycloak.
type Server struct {
	// URL is where it is, without /admin and /realms.
	URL string

	group *process.Group
	dir   string
}

// Start starts a Keycloak that ends with the test. Where it cannot be installed the test
// is skipped, or fails if TRUEUP_REQUIRE_SERVICES is 1.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := Run(tb.Context())
	process.Started(tb, err, ErrNotInstalled)
	tb.Cleanup(s.Stop)
	return s
}

// Run starts a Keycloak that the caller must stop, where there is no test. The context
// bounds the start only. The error is ErrNotInstalled where it cannot be installed.
func Run(ctx context.Context) (*Server, error) {
	place, err := install(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trueup-keycloak-")
	if err != nil {
		return nil, err
	}
	s := &Server{group: process.NewGroup(dir), dir: dir}
	if err := s.start(ctx, place); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends Keycloak. Calling it again does nothing.
func (s *Server) Stop() {
	s.group.Close()
	os.RemoveAll(s.dir) //nolint:errcheck // a folder of logs
}

func (s *Server) start(ctx context.Context, place string) error {
	port, err := process.Port(ctx)
	if err != nil {
		return err
	}
	s.URL = "http://127.0.0.1:" + strconv.Itoa(port)
	// Not kc.sh: the Java that it starts would outlive it.
	p, err := s.group.Run(
		"keycloak",
		"java",
		[]string{"KC_BOOTSTRAP_ADMIN_USERNAME=" + User, "KC_BOOTSTRAP_ADMIN_PASSWORD=" + Password},
		java(
			place,
			"start",
			"--optimized",
			"--http-enabled=true",
			"--hostname-strict=false",
			"--proxy-headers=xforwarded", // a test may stand before it with https
			"--http-host=127.0.0.1",
			"--http-port="+strconv.Itoa(port),
			"--log-level=warn",
		)...)
	if err != nil {
		return err
	}
	return p.Answers(ctx, s.URL+"/realms/master", http.StatusOK, startLimit)
}

// java returns the arguments of a Java. Its second compiler is left on: without it, the keys
// of a realm take ten times as long.
func java(place string, command ...string) []string {
	args := []string{
		"-Xms64m",
		"-Xmx512m",
		"-XX:+UseSerialGC",
		"-XX:+ExitOnOutOfMemoryError",
		"-Dfile.encoding=UTF-8",
		"-Duser.language=en",
		"-Duser.country=US",
		"-Dkc.home.dir=" + place,
		"-Djboss.server.config.dir=" + filepath.Join(place, "conf"),
		"-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
		"-Dpicocli.disable.closures=true",
		"-Dquarkus-log-max-startup-records=10000",
		"-Djava.util.concurrent.ForkJoinPool.common.threadFactory=io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
	}
	for _, name := range []string{"java.util", "java.util.concurrent", "java.security", "java.lang"} {
		args = append(args, "--add-opens=java.base/"+name+"=ALL-UNNAMED")
	}
	args = append(args, "-cp", filepath.Join(place, "lib", "quarkus-run.jar"), "io.quarkus.bootstrap.runner.QuarkusEntryPoint")
	return append(args, command...)
}
