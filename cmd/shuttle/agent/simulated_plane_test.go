package agent_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// starbaseWorld is the control plane of one simulated world, on a SQLite of its own.
type starbaseWorld struct {
	t       *testing.T
	fresh   freshDatabase
	dir     string
	store   *controlplanetest.Clusters // nil while it is closed
	handler http.Handler
	// puts holds what the user has put. A world without a user begins with the puts of the world
	// before.
	puts   []put
	before *starbaseWorld
	// since and until are from when on an object is wanted, and when it last ceased to be.
	since, until map[string]time.Time
	rested       string // the database at the beginning of the rest
	// spells are the habits of the control plane that an edit has begun, beside those that
	// requests to Kubernetes begin, which are few.
	spells map[applytest.Disturbance]time.Time
}

// must ends the whole test binary: the end of a goroutine would be a deadlock in a bubble.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// freshDatabase is a database with the cluster, and the token of its agent.
type freshDatabase struct {
	file  []byte
	token string
}

const databaseFile = "trueup.db"

func newDatabase(t *testing.T) freshDatabase {
	t.Helper()
	dir := t.TempDir()
	store := openStore(t, dir)
	token, _, err := store.RegisterCluster(t.Context(), clusterID, "nyc3")
	must(err)
	must(store.Database.Close())
	file, err := os.ReadFile(filepath.Join(dir, databaseFile))
	must(err)
	return freshDatabase{file, token}
}

func openStore(t *testing.T, dir string) *controlplanetest.Clusters {
	t.Helper()
	keys, err := controlplanetest.ParseKeys("one " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)) + "\n")
	must(err)
	return &controlplanetest.Clusters{Database: controlplanetest.Open(t, filepath.Join(dir, databaseFile)), Keys: keys}
}

// put is what the user wants at a path of the API.
type put struct {
	path string
	body any
}

// compare sorts what others refer to first: projects, groups, services, what is attached.
func (p put) compare(other put) int { return cmp.Compare(p.rank(), other.rank()) }

func (p put) rank() int {
	switch {
	case strings.HasSuffix(p.path, "/var-groups"):
		return 3
	case strings.Contains(p.path, "/services/"):
		return 2
	case strings.Contains(p.path, "/var-groups/"):
		return 1
	}
	return 0
}

// start opens the database of a world with a user.
func (p *starbaseWorld) start() {
	p.before = nil
	p.open()
}

// open opens the database, if it is not open.
func (p *starbaseWorld) open() {
	if p.store != nil {
		return
	}
	p.dir = p.t.TempDir()
	must(os.WriteFile(filepath.Join(p.dir, databaseFile), p.fresh.file, 0o600))
	p.store = openStore(p.t, p.dir)
	_, err := p.store.Database.Log.DB.ExecContext(p.t.Context(), "PRAGMA synchronous = OFF") // no world loses its power
	must(err)
	p.handler = controlplanetest.ClusterAPI(p.t, p.store)
	must(os.WriteFile(p.token(), []byte(p.fresh.token), 0o600))
	if p.before != nil {
		for _, each := range slices.SortedStableFunc(slices.Values(p.before.puts), put.compare) {
			if status := p.put(each.path, each.body); status >= http.StatusBadRequest {
				panic(fmt.Sprint(each, ": ", status))
			}
		}
	}
	p.note()
}

func (p *starbaseWorld) token() string { return filepath.Join(p.dir, "token") }

// close closes the database.
func (p *starbaseWorld) close() {
	if p.store == nil {
		return
	}
	must(p.store.Database.Close())
	p.store = nil
}

// admin sends a request of the user, and returns the status of the answer.
func (p *starbaseWorld) admin(method, path string, body any) int {
	data, err := json.Marshal(body)
	must(err)
	r := httptest.NewRequestWithContext(p.t.Context(), method, "/api/v1/admin/"+path, bytes.NewReader(data))
	r.Header.Set("Authorization", "Bearer "+controlplanetest.AdminToken)
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	if answer.Code == http.StatusBadRequest || answer.Code >= http.StatusInternalServerError {
		panic(fmt.Sprintf("%s %s %s: %d %s", method, path, data, answer.Code, answer.Body))
	}
	return answer.Code
}

// put wants something from now on.
func (p *starbaseWorld) put(path string, body any) int {
	status := p.admin(http.MethodPut, path, body)
	if status < http.StatusBadRequest {
		p.forget(func(other string) bool { return other == path })
		p.puts = append(p.puts, put{path, body})
	}
	return status
}

// remove deletes an object from the desired state, with all that is below it.
func (p *starbaseWorld) remove(path string) int {
	status := p.admin(http.MethodDelete, path, nil)
	if status < http.StatusBadRequest {
		p.forget(func(other string) bool { return other == path || strings.HasPrefix(other, path+"/") })
	}
	return status
}

func (p *starbaseWorld) forget(which func(path string) bool) {
	p.puts = slices.DeleteFunc(p.puts, func(each put) bool { return which(each.path) })
}

// starbaseLink carries the requests of one life of the agent to the control plane.
type starbaseLink struct {
	plane *starbaseWorld
	net   http.RoundTripper
}

// The habits of the link and of the control plane.
const (
	stopPlane    applytest.Disturbance = "stop the control plane at"
	lockDatabase applytest.Disturbance = "lock the database from"
	loseLink     applytest.Disturbance = "lose requests to the control plane from"
	cutLink      applytest.Disturbance = "cut answers of the control plane from"
	proxyLink    applytest.Disturbance = "show a page in place of the control plane from"
	slowLink     applytest.Disturbance = "slow down the control plane from"
	emptyState   applytest.Disturbance = "lose all rows for a moment at"
)

// habits returns the habits of the control plane, for Scenario.Habits.
func (p *starbaseWorld) habits() []simtest.Habit {
	return []simtest.Habit{
		{Name: stopPlane, Does: "The control plane is away for up to two minutes.", Spell: 2 * time.Minute},
		{Name: lockDatabase, Does: "The control plane answers 503 for up to a minute.", Spell: time.Minute},
		{Name: loseLink, Does: "Half of the requests to the control plane, or their answers, are lost for up to a minute.", Spell: time.Minute},
		{Name: cutLink, Does: "Answers of the control plane end in the middle for up to a minute.", Spell: time.Minute},
		{Name: proxyLink, Does: "A proxy answers in place of the control plane for up to a minute.", Spell: time.Minute},
		{Name: slowLink, Does: "Answers of the control plane take up to 25 seconds for up to a minute.", Spell: time.Minute},
		{Name: emptyState, Does: "The desired state is empty for less than a minute.", Spell: 50 * time.Second},
	}
}

// begin lets one of the habits begin.
func (p *starbaseWorld) begin(w *simtest.World) {
	all := p.habits()
	h := all[w.Random.IntN(len(all))]
	p.spells[h.Name] = time.Now().Add(time.Duration(w.Random.Int64N(int64(h.Spell))))
	w.Log("%s now, until %v", h.Name, p.spells[h.Name])
}

func (p *starbaseWorld) lasts(w *simtest.World, name applytest.Disturbance) bool {
	return w.Lasts(name) || w.Faulty() && time.Now().Before(p.spells[name])
}

var errLink = errors.New("connection reset by peer")

// RoundTrip implements http.RoundTripper.
func (l starbaseLink) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	name := r.Method + " " + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	var wait time.Duration
	err = simtest.Call(r.Context(), l.net, name, func(w *simtest.World) (err error) {
		answer, err = l.plane.answer(w, w.Dice("link "+name).IntN, r)
		if l.plane.lasts(w, slowLink) {
			wait = time.Duration(1+w.Dice("slow "+name).IntN(25_000)) * time.Millisecond
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if wait > 0 && !pause.For(r.Context(), wait) {
		return nil, r.Context().Err()
	}
	return answer, nil
}

// answer carries out a request, with what the habits do to it.
func (p *starbaseWorld) answer(w *simtest.World, roll func(int) int, r *http.Request) (*http.Response, error) {
	lost, cut := p.lasts(w, loseLink) && roll(2) == 0, p.lasts(w, cutLink) && roll(2) == 0
	recorder := httptest.NewRecorder()
	switch {
	case p.lasts(w, stopPlane), lost && roll(2) == 0:
		return nil, errLink
	case p.lasts(w, proxyLink):
		foreign(recorder, roll)
	case p.lasts(w, lockDatabase):
		recorder.Header().Set("Retry-After", "1")
		recorder.WriteHeader(http.StatusServiceUnavailable)
	default:
		p.handler.ServeHTTP(recorder, r)
	}
	if lost {
		return nil, errLink
	}
	answer := recorder.Result()
	body := recorder.Body.Bytes()
	if p.lasts(w, emptyState) && answer.StatusCode == http.StatusOK && strings.HasSuffix(r.URL.Path, "/desired-state") {
		body = p.empty(body)
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	if cut && len(body) > 0 {
		body = body[:roll(len(body))]
		answer.Body = io.NopCloser(bytes.NewReader(body))
		if roll(2) == 0 {
			answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), brokenReader{}))
		}
	}
	return answer, nil
}

// foreign is an answer that is not one of the control plane.
func foreign(w http.ResponseWriter, roll func(int) int) {
	page := "<html><body>Log in</body></html>"
	w.Header().Set("Content-Type", "text/html")
	switch roll(5) {
	case 0:
		w.WriteHeader(http.StatusBadGateway)
	case 1:
		page = ""
	case 2:
		page = "{}"
	case 3:
		w.Header().Set("Location", "https://login.example.com/")
		w.WriteHeader(http.StatusFound)
	}
	_, _ = io.WriteString(w, page)
}

// empty takes all rows out of a desired state.
func (p *starbaseWorld) empty(body []byte) []byte {
	state, err := starbase.Decode(bytes.NewReader(body), clusterID)
	must(err)
	state.Nonce, state.Projects, state.Services, state.VarGroups = "empty", nil, nil, nil
	must(state.Seal())
	body, err = json.Marshal(state)
	must(err)
	return body
}

type brokenReader struct{}

// Read implements io.Reader.
func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// environment returns what the agent is configured with.
func (p *starbaseWorld) environment() func(string) string {
	env := map[string]string{
		"STARFORM_STARBASE_URL": "https://starbase.example.com", "STARFORM_CLUSTER_ID": clusterID, "STARFORM_REGION": "nyc3",
		"STARFORM_AUTH_TOKEN_FILE": p.token(), "STARFORM_GATEWAY_SERVICE": "edge/gateway",
	}
	return func(name string) string { return env[name] }
}

// rows returns what the database has in a table, in order.
func (p *starbaseWorld) rows(query string) string {
	var text strings.Builder
	must(p.store.Database.Read(p.t.Context(), func(tx *controlplanetest.Tx) error {
		found, err := tx.QueryContext(p.t.Context(), query)
		if err != nil {
			return err
		}
		defer found.Close()
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
			_, _ = fmt.Fprintln(&text, values...) // a Builder takes everything
		}
		return found.Err()
	}))
	return text.String()
}
