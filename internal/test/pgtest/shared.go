package pgtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// SharedVariable names the environment variable by which a run of many packages tells its
// tests of one server for all of them.
const SharedVariable = "TRUEUP_TEST_POSTGRES"

// shared is the server of this process's tests, or the address of the run's.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns a server that tests share: the server of the run, or else one of this
// process, which on Linux ends with it. It takes a thousand connections. A test makes
// databases of its own in it, and neither kills it nor makes roles. Where PostgreSQL is
// not installed the test is skipped, as by Start.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.once.Do(func() {
		if told := os.Getenv(SharedVariable); told != "" {
			shared.server, shared.err = parse(told)
			return
		}
		shared.server, shared.err = Run(context.Background(), Options{Settings: []string{"max_connections=1000"}})
	})
	process.Started(tb, shared.err, ErrNotInstalled)
	return shared.server
}

// NewDatabase makes a new, empty database on the shared server, as [Server.Database] does,
// and returns its URL.
func NewDatabase(tb testing.TB) string {
	tb.Helper()
	return Shared(tb).Database(tb)
}

// told is what a test needs of a server of another process.
type told struct {
	Dir, Bin string
	As       []string
	Port     int
}

// Variable returns the environment variable that names the server, as an assignment.
func (s *Server) Variable() (string, error) {
	text, err := json.Marshal(told{Dir: s.dir, Bin: s.bin, As: s.as, Port: s.Port})
	return SharedVariable + "=" + string(text), err
}

func parse(text string) (*Server, error) {
	var t told
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, fmt.Errorf("%s: %w", SharedVariable, err)
	}
	return &Server{Port: t.Port, dir: t.Dir, bin: t.Bin, as: t.As, infix: strconv.Itoa(os.Getpid()) + "_"}, nil
}
