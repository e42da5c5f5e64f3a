// Package s3test runs a real server of S3 for tests: versitygw, built from Go modules,
// in a process and a folder of its own that end with the test.
package s3test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// The account of every server.
const (
	AccessKey = "trueup"
	SecretKey = "sesame-sesame"
	Region    = "us-east-1"
)

// startLimit bounds a start; it takes less than a second.
const startLimit = time.Minute

// Server is a running server of S3. It keeps versions of objects in buckets that ask for
// it. It is not safe for concurrent use.
type Server struct {
	// URL is its endpoint, in path style.
	URL string

	program string
	dir     string
	port    int
	group   *process.Group
	daemon  *process.Process
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := Run(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Run starts a server that the caller must Stop. The context bounds the start only.
func Run(ctx context.Context) (*Server, error) {
	program, err := modbuild.Versitygw(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trueup-s3-")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir, group: process.NewGroup(dir)}
	if err := s.prepare(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("versitygw in %s: %w", dir, err)
	}
	return s, nil
}

func (s *Server) prepare(ctx context.Context) error {
	var err error
	if s.port, err = process.Port(ctx); err != nil {
		return err
	}
	s.URL = "http://127.0.0.1:" + strconv.Itoa(s.port)
	for _, name := range []string{"data", "versions", "metadata"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o750); err != nil {
			return err
		}
	}
	return s.Start(ctx)
}

// Start starts the server again after Kill, and waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	var err error
	// The metadata are in files: not every file system has attributes for them.
	s.daemon, err = s.group.Run(
		"versitygw",
		s.program,
		nil,
		"--port",
		"127.0.0.1:"+strconv.Itoa(s.port),
		"--access",
		AccessKey,
		"--secret",
		SecretKey,
		"--region",
		Region,
		"--quiet",
		"posix",
		"--versioning-dir",
		filepath.Join(s.dir, "versions"),
		"--sidecar",
		filepath.Join(s.dir, "metadata"),
		filepath.Join(s.dir, "data"),
	)
	if err != nil {
		return err
	}
	return s.daemon.Answers(ctx, s.URL, 0, startLimit)
}

// Kill ends the server at once. What it has stored stays.
func (s *Server) Kill() {
	if s.daemon != nil {
		s.daemon.Kill()
		s.daemon = nil
	}
}

// Stop ends the server and removes what it has stored. Calling it again does nothing.
func (s *Server) Stop() {
	s.group.Close()
	os.RemoveAll(s.dir) //nolint:errcheck // a folder of a test
}
