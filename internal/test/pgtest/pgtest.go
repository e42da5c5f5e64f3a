// Package pgtest runs a real PostgreSQL for tests: a server of their own, in a
// folder of their own, that ends with them, on Linux even when they are killed.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// ErrNotInstalled is a machine without the programs of PostgreSQL.
var ErrNotInstalled = errors.New(
	"PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or PATH (Debian: apt-get install postgresql)",
)

// startLimit bounds a start, and a recovery after a crash.
const startLimit = 2 * time.Minute

// Options say how a server runs. The zero Options are for tests.
type Options struct {
	// Fsync makes commits wait for the disk. Without, a server that is killed
	// still loses nothing; a machine that loses its power does.
	Fsync bool
	// Settings are more of the server's settings, as "max_connections=200".
	Settings []string
	// Passwords makes the server listen on 127.0.0.1, too, where roles log in with
	// their password (scram-sha-256), and the superuser postgres not at all. On the Unix
	// socket every role is trusted, as always.
	Passwords bool
}

// access is the pg_hba.conf for [Options.Passwords].
const access = `local all all trust
host all postgres all reject
host all all 127.0.0.1/32 scram-sha-256
`

// Server is a running PostgreSQL, on a Unix socket. It is not safe for
// concurrent use but for Database.
type Server struct {
	// Port is where it listens on 127.0.0.1 ([Options.Passwords]), otherwise 5432, which
	// is but part of the name of its socket.
	Port int

	options Options
	dir     string
	bin     string
	// as is the beginning of each command: PostgreSQL refuses to run as root.
	as        []string
	group     *process.Group
	daemon    *process.Process
	databases atomic.Int64
	infix     string // of the names of databases, where several processes make some
	unlock    func()
}

// Start starts a server that ends with the test. Where PostgreSQL is not
// installed the test is skipped, or fails if TRUEUP_REQUIRE_SERVICES is 1.
func Start(tb testing.TB, options Options) *Server {
	tb.Helper()
	s, err := Run(tb.Context(), options)
	process.Started(tb, err, ErrNotInstalled)
	tb.Cleanup(s.Stop)
	return s
}

// Run starts a server that the caller must Stop.
func Run(ctx context.Context, options Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	process.RemoveAbandoned(filepath.Join(os.TempDir(), folder+"*", lockName))
	// Not the folder of a test: the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", folder)
	if err != nil {
		return nil, err
	}
	s := &Server{Port: 5432, options: options, dir: dir, bin: bin}
	if err := s.prepare(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("PostgreSQL in %s: %w", dir, err)
	}
	return s, nil
}

// programs returns the folder of the newest PostgreSQL.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for another name
		return n
	}
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", ErrNotInstalled
	}
	return filepath.Dir(path), nil
}

func (s *Server) prepare(ctx context.Context) error {
	var err error
	if s.unlock, err = lock(s.dir); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := s.chooseUser(); err != nil {
			return err
		}
	}
	s.group = process.NewGroup(s.dir)
	if err := s.command(
		ctx,
		"initdb",
		"--pgdata="+s.data(),
		"--no-sync",
		"--auth=trust",
		"--username=postgres",
		"--encoding=UTF8",
		"--locale=C",
	); err != nil {
		return err
	}
	if s.options.Passwords {
		if err := s.listen(ctx); err != nil {
			return err
		}
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	return s.SQL(ctx, "postgres", "CREATE ROLE trueup LOGIN")
}

// listen chooses a port, and writes the hba_file.
func (s *Server) listen(ctx context.Context) error {
	var err error
	if s.Port, err = process.Port(ctx); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "access.conf")
	s.options.Settings = slices.Concat(
		[]string{"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.Port), "hba_file=" + file},
		s.options.Settings,
	)
	return os.WriteFile(file, []byte(access), 0o644) // the server runs as another user
}

// chooseUser chooses the user that the server runs as, and gives it the
// folder.
func (s *Server) chooseUser() error {
	var who *user.User
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			who = u
			break
		}
	}
	if who == nil {
		return errors.New("there is no user postgres or nobody to run it as")
	}
	uid, err := strconv.Atoi(who.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(who.Gid)
	if err != nil {
		return err
	}
	// The kernel forgets the parent-death signal with the change of the user;
	// setpriv sets it again.
	s.as = []string{"setpriv", "--reuid=" + who.Uid, "--regid=" + who.Gid, "--clear-groups", "--pdeathsig=KILL"}
	return os.Chown(s.dir, uid, gid)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command runs one of PostgreSQL's programs to its end.
func (s *Server) command(ctx context.Context, name string, args ...string) error {
	line := append(slices.Clone(s.as), append([]string{filepath.Join(s.bin, name)}, args...)...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// Start starts the server again after Kill, and waits until it answers.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	fsync := "off"
	if s.options.Fsync {
		fsync = "on"
	}
	settings := append([]string{
		"listen_addresses=", "unix_socket_directories=" + s.dir, "fsync=" + fsync, "max_connections=200",
		"autovacuum_naptime=5s", "log_checkpoints=off",
	}, s.options.Settings...)
	line := append(slices.Clone(s.as), filepath.Join(s.bin, "postgres"), "-D", s.data())
	for _, setting := range settings {
		line = append(line, "-c", setting)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.daemon == nil {
			path, err := exec.LookPath(line[0])
			if err != nil {
				return err
			}
			if s.daemon, err = s.group.Run("postgres", path, nil, line[1:]...); err != nil {
				return err
			}
		}
		err := s.SQL(ctx, "postgres", "SELECT")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w\n%s", err, s.daemon.Tail())
		case <-s.daemon.Exited():
			// The backends of the one that was killed may still be there.
			s.daemon = nil
		case <-tick.C:
		}
	}
}

// SQL runs a statement in the database as the superuser.
func (s *Server) SQL(ctx context.Context, database, statement string) error {
	return s.command(
		ctx,
		"psql",
		"--no-psqlrc",
		"--quiet",
		"--host="+s.dir,
		"--port="+strconv.Itoa(s.Port),
		"--username=postgres",
		"--dbname="+database,
		"--set=ON_ERROR_STOP=1",
		"--command="+statement,
	)
}

// Database makes a new, empty database that belongs to the role trueup, which is
// no superuser, and returns its URL.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("db%s%d", s.infix, s.databases.Add(1))
	if err := s.SQL(tb.Context(), "postgres", "CREATE DATABASE "+name+" OWNER trueup"); err != nil {
		tb.Fatal(err)
	}
	return s.URL(name)
}

// URL returns how the role trueup connects to the database.
func (s *Server) URL(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("trueup"), Path: "/" + database, RawQuery: url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.Port)}}.Encode()}).String()
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	if s.daemon != nil {
		s.daemon.Kill()
		s.daemon = nil
	}
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() {
	if s.group != nil {
		s.group.Close()
	}
	// Backends that are still about to notice may write once more.
	for range 100 {
		if os.RemoveAll(s.dir) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s.unlock != nil {
		s.unlock()
	}
}
