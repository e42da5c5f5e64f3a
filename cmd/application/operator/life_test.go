package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// call is something that a process of the operator asks of one of its four
// dependencies.
type call struct {
	// to is kubernetes, sql, s3 or keycloak.
	to string
	// what names the call without the parts that differ between worlds, and nth numbers
	// the calls of one name, from 1.
	what string
	nth  int
}

// String returns the call on a line.
func (c call) String() string { return fmt.Sprintf("%s: %s (%d)", c.to, c.what, c.nth) }

// sent is a call with what became of it.
type sent struct {
	call

	writes bool
	text   string // with the names of its world
	at     time.Time
	status int // of HTTP: 0 for none
}

// life is one process of the operator as its dependencies see it. It keeps a list of what
// is sent, and ends the process at one call.
type life struct {
	// world is replaced in the names of calls. Empty: nothing is.
	world string
	// end is the last call, of which after lets the dependency carry it out. The zero value
	// is none.
	end   call
	after bool
	// kill ends the process.
	kill context.CancelFunc
	// doomed, if set, reports whether a call is the last one, beside end.
	doomed func(sent) bool
	// before, if set, is called before each request to Kubernetes.
	before func(applytest.Request)

	mu   sync.Mutex
	dead bool
	all  []*sent
	seen map[string]int
}

var errDead = errors.New("the process has ended")

// begin notes a call. It returns an error when the process has ended before.
func (l *life) begin(to, what, text string, writes bool) (s *sent, last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, false, errDead
	}
	if l.world != "" {
		what = strings.ReplaceAll(what, l.world, "WORLD")
	}
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[to+what]++
	s = &sent{call: call{to, what, l.seen[to+what]}, writes: writes, text: text, at: time.Now()}
	l.all = append(l.all, s)
	last = s.call == l.end || l.doomed != nil && l.doomed(*s)
	if last && !l.after {
		l.die()
		return nil, true, errDead
	}
	return s, last, nil
}

// die ends the process. The lock is held.
func (l *life) die() {
	l.dead = true
	if l.kill != nil {
		l.kill()
	}
}

// done notes the answer to a call.
func (l *life) done(s *sent, last bool, status int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.status = status
	if last {
		l.die()
	}
	if l.dead {
		return errDead
	}
	return nil
}

func (l *life) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// calls returns the calls that were sent so far.
func (l *life) calls() (all []sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		all = append(all, *s)
	}
	return all
}

// count returns how many calls to a dependency were sent, and how many of them write.
func (l *life) count(to string) (reads, writes int) {
	for _, s := range l.calls() {
		switch {
		case s.to != to:
		case s.writes:
			writes++
		default:
			reads++
		}
	}
	return reads, writes
}

// transport is a life as the client of Kubernetes sees it. Only writes are calls: a read that
// is cut changes nothing that the write after it does not.
func (l *life) transport() *applytest.Transport {
	return &applytest.Transport{
		OnCrash: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.die()
		},
		Fault: func(r applytest.Request) applytest.Fault {
			if l.before != nil {
				l.before(r)
			}
			if !r.Writes() || r.Resource == "leases" {
				return applytest.Fault{Lose: l.ended()}
			}
			what := r.String()
			if r.Resource == "events" {
				what = "create events" // their names are random
			}
			_, last, err := l.begin("kubernetes", what, r.String(), true)
			return applytest.Fault{Lose: err != nil, Crash: last && err == nil, LoseAnswer: last && err == nil}
		},
	}
}

// wire is a life as the client of S3 or Keycloak sees it.
type wire struct {
	*life

	to   string
	next http.RoundTripper
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	text := r.Method + " " + r.URL.RequestURI()
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || strings.HasSuffix(r.URL.Path, "/token")
	s, last, err := w.begin(w.to, uuids.ReplaceAllString(text, "ID"), text, !reads)
	if err != nil {
		return nil, err
	}
	next := w.next
	if next == nil {
		next = http.DefaultTransport
	}
	answer, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := w.done(s, last, answer.StatusCode); err != nil {
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, nil
}

// Do implements aws.HTTPClient.
func (w *wire) Do(r *http.Request) (*http.Response, error) { return w.RoundTrip(r) }

// statements is a life as the driver of PostgreSQL sees it.
type statements struct{ *life }

type statementKey struct{}

type statement struct {
	*sent

	last bool
}

var words = regexp.MustCompile(`[A-Za-z_"0-9]+`)

// TraceQueryStart implements pgx.QueryTracer. The driver sends nothing with a context that
// has ended.
func (t statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name := words.FindAllString(data.SQL, 8)
	verb := strings.ToUpper(name[0])
	reads := slices.Contains([]string{"SELECT", "BEGIN", "ROLLBACK"}, verb)
	if verb == "SELECT" && !strings.Contains(data.SQL, "advisory") {
		name = name[:3]
	}
	s, last, err := t.begin("sql", strings.Join(name, " "), data.SQL, !reads)
	if err != nil {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return ended
	}
	return context.WithValue(ctx, statementKey{}, &statement{s, last})
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if s, ok := ctx.Value(statementKey{}).(*statement); ok {
		status := http.StatusOK
		if data.Err != nil {
			status = http.StatusInternalServerError
		}
		t.done(s.sent, s.last, status) //nolint:errcheck // the context has ended with the process
	}
}
