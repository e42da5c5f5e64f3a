package controlplanetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Simulation makes control planes of simulated worlds, which begin with the same database. Set
// the fields before the first Next.
type Simulation struct {
	// Streams has the parts run that streams of regions need, and what works by itself.
	Streams bool
	// Rank, if not nil, is the order in which the paths of the admin API are put again in a
	// world without a user. Those of one rank are put in the order of their last puts.
	Rank func(path string) int
	// Bearer is the token that agents of all regions share. Empty: there is none.
	Bearer string
	// Rotate, if not nil, gives the agent another token, and adds a habit that does so.
	Rotate func(context.Context, *Simulated) (token string)

	tb    testing.TB
	keys  *Keys
	file  []byte
	token string
	last  *Simulated
}

const databaseFile = "trueup.db"

// NewSimulation returns a simulation. What fill puts into the database is there from the start;
// it returns the token of the agent. Keys may be nil.
func NewSimulation(tb testing.TB, keys *Keys, fill func(context.Context, *Simulated) (token string)) *Simulation {
	tb.Helper()
	s := &Simulation{Streams: true, tb: tb, keys: keys}
	p := s.Next()
	p.Open()
	s.token = fill(p.ctx(), p)
	// The file itself may lack what its write-ahead log has.
	whole := filepath.Join(p.dir, "whole.db")
	_, err := p.replica.database.Log.DB.ExecContext(p.ctx(), "VACUUM INTO ?", whole)
	check(tb, err)
	p.Close()
	s.file, err = os.ReadFile(whole)
	check(tb, err)
	s.Streams, s.last = false, nil
	return s
}

// Next returns the control plane of the next world.
func (s *Simulation) Next() *Simulated {
	p := &Simulated{
		Lists:      map[string]int{},
		simulation: s, before: s.last, spells: map[applytest.Disturbance]time.Time{}, streams: map[*stream]bool{},
	}
	s.last = p
	return p
}

// Simulated is the control plane of one simulated world. Its methods do not return errors: one
// ends the whole test binary, since the end of a goroutine would be a deadlock in a bubble.
type Simulated struct {
	// Clusters and Regions are its database, once it is open.
	Clusters *Clusters
	Regions  *Regions
	// Answer, if not nil, changes the body of an answer on its way to the agent.
	Answer func(w *simtest.World, r *http.Request, body []byte) []byte
	// Lose, if not nil, reports whether a request of a method is lost.
	Lose func(method string) bool
	// Lists is how many streams of each method have asked for the whole list.
	Lists map[string]int
	// Logger gets the lines of the control plane. Nil: nothing is logged.
	Logger *slog.Logger

	simulation *Simulation
	dir        string
	replica    *replica // nil while it is closed
	stop       func()
	newest     string // token of the agent
	puts       []putting
	// before is the world before this one: a world without a user begins with its puts.
	before *Simulated
	// spells are the habits that an edit has begun, beside those that requests to Kubernetes
	// begin, which are few.
	spells map[applytest.Disturbance]time.Time

	mu      sync.Mutex
	streams map[*stream]bool
	serving sync.WaitGroup // the handlers of streams
}

// putting is what the user wants at a path of the admin API.
type putting struct {
	path string
	body any
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ctx never ends: a channel that was made outside of a bubble holds up its time.
func (p *Simulated) ctx() context.Context { return context.WithoutCancel(p.simulation.tb.Context()) }

// Start opens the database of a world with a user.
func (p *Simulated) Start() {
	p.before = nil
	p.Open()
}

// Open opens the database unless it is open. A world without a user, whose Start was not called,
// begins with what the user of the world before has put.
func (p *Simulated) Open() {
	if p.replica != nil {
		return
	}
	p.dir = p.simulation.tb.TempDir()
	if p.simulation.file != nil {
		must(os.WriteFile(p.source(), p.simulation.file, 0o600))
	}
	p.SetToken(p.simulation.token)
	p.run()
	if p.before == nil {
		return
	}
	rank := p.simulation.Rank
	if rank == nil {
		rank = func(string) int { return 0 }
	}
	again := slices.Clone(p.before.puts)
	slices.SortStableFunc(again, func(a, b putting) int { return cmp.Compare(rank(a.path), rank(b.path)) })
	for _, each := range again {
		if status := p.Put(each.path, each.body); status >= http.StatusBadRequest {
			panic(fmt.Sprint(each, ": ", status))
		}
	}
}

func (p *Simulated) source() string { return filepath.Join(p.dir, databaseFile) }

// TokenFile is the file with the token of the agent.
func (p *Simulated) TokenFile() string { return filepath.Join(p.dir, "token") }

// SetToken writes the token of the agent.
func (p *Simulated) SetToken(token string) { must(os.WriteFile(p.TokenFile(), []byte(token), 0o600)) }

// run starts the control plane on its file.
func (p *Simulated) run() {
	tb := p.simulation.tb
	database := Open(tb, p.source())
	_, err := database.Log.DB.ExecContext(p.ctx(), "PRAGMA synchronous = OFF") // no world loses its power
	must(err)
	if p.simulation.file != nil {
		database.Log.Poll = time.Minute // all commits are of this process, and wake it
	}
	p.Clusters, p.Regions = &Clusters{Database: database, Keys: p.simulation.keys}, &Regions{Database: database}
	options := Options{Keys: p.simulation.keys, Bearer: p.simulation.Bearer, Heartbeat: 15 * time.Second, Logger: p.Logger}
	p.replica = assemble(tb, database, options, 0, 0)
	ctx, cancel := context.WithCancel(p.ctx())
	done := make(chan error, 1)
	group := reconcile.Group{Members: p.replica.members}
	if !p.simulation.Streams {
		group.Members = group.Members[:1] // the streams of clusters
	}
	go func() { done <- group.Start(ctx) }()
	p.stop = func() {
		cancel()
		must(<-done)
	}
}

// Close ends the streams, and closes the database.
func (p *Simulated) Close() {
	if p.replica == nil {
		return
	}
	p.Cut()
	p.stop()
	p.serving.Wait()
	must(p.replica.database.Close())
	p.replica = nil
}

// Restart ends the process of the control plane, and starts another one.
func (p *Simulated) Restart() {
	p.Close()
	p.run()
}

// admin sends a request of the user, and returns the status of the answer.
func (p *Simulated) admin(method, path string, body any) int {
	data, err := json.Marshal(body)
	must(err)
	r := httptest.NewRequestWithContext(p.ctx(), method, "/api/v1/admin/"+path, bytes.NewReader(data))
	r.Header.Set("Authorization", "Bearer "+AdminToken)
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	p.replica.handler.ServeHTTP(answer, r)
	if answer.Code == http.StatusBadRequest || answer.Code >= http.StatusInternalServerError {
		panic(fmt.Sprintf("%s %s %s: %d %s", method, path, data, answer.Code, answer.Body))
	}
	return answer.Code
}

// Put has the user want something from now on, at a path of the admin API.
func (p *Simulated) Put(path string, body any) (status int) {
	status = p.admin(http.MethodPut, path, body)
	if status < http.StatusBadRequest {
		p.forget(func(other string) bool { return other == path })
		p.puts = append(p.puts, putting{path, body})
	}
	return status
}

// Remove has the user delete an object, with all that is below its path.
func (p *Simulated) Remove(path string) (status int) {
	status = p.admin(http.MethodDelete, path, nil)
	if status < http.StatusBadRequest {
		p.forget(func(other string) bool { return other == path || strings.HasPrefix(other, path+"/") })
	}
	return status
}

// Vanish has a person delete rows of what is at a path by hand, past the API.
func (p *Simulated) Vanish(path, statement string) {
	_, err := p.replica.database.Log.DB.ExecContext(p.ctx(), statement)
	must(err)
	p.forget(func(other string) bool { return other == path })
}

func (p *Simulated) forget(which func(path string) bool) {
	p.puts = slices.DeleteFunc(p.puts, func(each putting) bool { return which(each.path) })
}

// Rows returns what a query finds in the database, a line for each row.
func (p *Simulated) Rows(query string) string {
	var text strings.Builder
	p.Each(query, func(values []any) { _, _ = fmt.Fprintln(&text, values...) }) // a Builder takes everything
	return text.String()
}

// Each calls do with the values of each row that a query finds.
func (p *Simulated) Each(query string, do func(values []any)) {
	must(p.replica.database.Read(p.ctx(), func(tx *Tx) error {
		found, err := tx.QueryContext(p.ctx(), query)
		if err != nil {
			return err
		}
		defer found.Close() //nolint:errcheck // it was read
		columns, err := found.Columns()
		if err != nil {
			return err
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for found.Next() {
			if err := found.Scan(into...); err != nil {
				return err
			}
			do(values)
		}
		return found.Err()
	}))
}
