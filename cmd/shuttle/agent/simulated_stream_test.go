package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// asked counts the requests to the control plane, by the end of their path.
type asked struct {
	mu sync.Mutex
	n  map[string]int
}

func (a *asked) note(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[path.Base(r.URL.Path)]++
}

// take returns how many there were since the last call.
func (a *asked) take(name string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, a.n[name] = a.n[name], 0
	return n
}

// withTwo has a world begin with two services, and returns their paths, and whether the cluster is as wanted.
func (p *starbaseWorld) withTwo(s *simtest.Scenario) (at func(n int) string, right func(*simtest.World) bool) {
	at = func(n int) string { return servicePathOf(1, n, productionOf) }
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		p.putProject(1)
		p.putWeb(at(0), 1)
		p.putWeb(at(1), 1)
	}
	return at, func(w *simtest.World) bool { return objects().Unlike(w, p.wanted()) == nil }
}

// TestAStreamNamesAChangeAtOnce has changes applied within a second, with one pull each. At rest there is
// no request but for the stream itself, which Starbase ends after half an hour, and perhaps a pull until there is another.
func TestAStreamNamesAChangeAtOnce(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		seen := &asked{n: map[string]int{}}
		p.transport = "stream"
		p.stands = func(r *http.Request) (*http.Response, error) {
			seen.note(r)
			return nil, nil //nolint:nilnil // the control plane answers
		}
		path, right := p.withTwo(s)
		s.Edit = func(w *simtest.World) {
			for n := range 20 { // at all phases of the ticker
				w.After(2*time.Minute+time.Duration(n)*41*time.Second, func() {
					seen.take("desired-state")
					p.putWeb(path(n%2), 2+n)
					w.Within(time.Second, "a change is applied", right)
				})
				w.After(2*time.Minute+time.Duration(n)*41*time.Second+40*time.Second, func() {
					if pulls := seen.take("desired-state"); pulls != 1 {
						w.Blame("%d pulls for change %d", pulls, n)
					}
				})
			}
			w.After(20*time.Minute, func() { seen.take("items") })
			w.After(80*time.Minute, func() {
				if pulls, streams := seen.take("desired-state"), seen.take("items"); pulls > streams || streams < 1 || streams > 4 {
					w.Blame("%d pulls and %d streams in an hour at rest", pulls, streams)
				}
				cluster, _, err := p.plane.Clusters.Cluster(t.Context(), clusterID)
				must(err)
				if since := time.Since(cluster.LastPullAt); since > 31*time.Second {
					w.Blame("the agent was heard of %v ago", since)
				}
				p.plane.Remove(path(1))
				p.note()
				w.Within(time.Second, "a service is removed", func(w *simtest.World) bool { return len(w.Objects("deployments.apps")) == 1 })
			})
		}
		s.Bounds, s.Prompt = nil, true
		s.Edits, s.Settle, s.Rest, s.Histories, s.Disturbances = 1, 82*time.Minute, time.Minute, 1, []applytest.Disturbance{}
	}))
}

// framesOf are the lines of a stream that names a version, and then of its heartbeats.
func framesOf(id, version string, digest statesync.Digest) (list, heartbeat string) {
	item := statesync.Item{Version: 7, Key: statesync.Key{Collection: starbase.VersionCollection, ID: id}, Value: []byte(`"` + version + `"`)}
	if digest == (statesync.Digest{}) {
		digest, _ = statesync.DigestOf([]statesync.Item{item})
	}
	lines := make([]string, 4)
	for n, f := range []statesync.Frame{
		{Type: statesync.FrameHeader, Heartbeat: 5 * time.Second},
		{Type: statesync.FrameItems, Version: 7, Items: []statesync.Item{item}},
		{Type: statesync.FrameSynced, After: 7, Version: 7, Count: 1, Digest: digest},
		{Type: statesync.FrameBookmark, After: 7, Version: 7, Count: 1, Digest: digest},
	} {
		f.Epoch, f.Head = "e", 7
		line, err := json.Marshal(f)
		must(err)
		lines[n] = string(line) + "\n"
	}
	return strings.Join(lines[:3], ""), lines[3]
}

// beating is the body of a stream: a text, and then another one each five seconds, or nothing more if that is empty.
type beating struct {
	io.Reader
	ctx       context.Context
	heartbeat string
}

// Read implements io.Reader.
func (b *beating) Read(to []byte) (int, error) {
	n, err := b.Reader.Read(to)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if b.heartbeat == "" {
		<-b.ctx.Done()
	} else if pause.For(b.ctx, 5*time.Second) {
		b.Reader = strings.NewReader(b.heartbeat)
		return b.Reader.Read(to)
	}
	return 0, b.ctx.Err()
}

// Close implements io.Closer.
func (*beating) Close() error { return nil }

// wrongStream is what is answered in place of a stream.
type wrongStream struct {
	name   string
	answer func(r *http.Request, current string) *http.Response
	says   string // of the log
	names  bool   // the version of now, at its beginning
}

func wrongStreams() []wrongStream {
	with := func(status int, kind, body string) func(*http.Request, string) *http.Response {
		return func(*http.Request, string) *http.Response {
			return &http.Response{
				StatusCode: status, Header: http.Header{"Content-Type": {kind}, "Location": {"https://login.example.net/"}},
				Body: io.NopCloser(strings.NewReader(body)),
			}
		}
	}
	frames := func(lines func(current string) (list, heartbeat string)) func(*http.Request, string) *http.Response {
		return func(r *http.Request, current string) *http.Response {
			list, heartbeat := lines(current)
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &beating{strings.NewReader(list), r.Context(), heartbeat}}
		}
	}
	list := func(current string) string {
		text, _ := framesOf(clusterID, current, statesync.Digest{})
		return text
	}
	const isJSON = "application/json"
	return []wrongStream{
		{"a login page", with(200, "text/html", "<html>"), "is there a proxy or a login page in between", false},
		{"a redirect", with(302, "text/plain", ""), "302 Found to https://login.example.net", false},
		{"another API", with(200, isJSON, `{"version":"1","services":[]}`), "frame: json: cannot unmarshal", false},
		{"nothing", with(200, isJSON, ""), "unexpected EOF", false},
		{
			"an older control plane",
			with(404, isJSON, `{"error":{"code":"unknown_path","message":"there is nothing at this path"}}`),
			"nothing at this path", false,
		},
		{"405", with(405, "text/plain", "no"), "unexpected answer", false},
		{"501", with(501, "text/plain", "no"), "unexpected answer", false},
		{"403", with(403, isJSON, `{"error":{"code":"forbidden","message":"the token belongs to another cluster"}}`), "another cluster", false},
		{"a cut line", func(_ *http.Request, current string) *http.Response {
			text := list(current)
			return with(200, isJSON, text[:len(text)-40])(nil, "")
		}, "", false},
		{"silence", frames(func(string) (string, string) { return "", "" }), "stream is silent", false},
		{"silence after the list", frames(func(current string) (string, string) { return list(current), "" }), "", true},
		{"another digest", frames(func(current string) (string, string) {
			return framesOf(clusterID, current, statesync.Digest{1})
		}), "", false},
		{"another cluster", frames(func(current string) (string, string) {
			return framesOf(uuid(4242), current, statesync.Digest{})
		}), "", false},
		{"another version", frames(func(string) (string, string) { return framesOf(clusterID, "e-7.older", statesync.Digest{}) }), "", false},
	}
}

// TestAStreamThatIsWrongIsNoStream has each wrong stream in place of the right one, for two minutes while the desired state
// cannot be pulled, either, and for three while it can: nothing is deleted for what it names, changes come with the
// ticker, and once it is right, at once.
func TestAStreamThatIsWrongIsNoStream(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *starbaseWorld, s *simtest.Scenario) {
		const each = 8 * time.Minute
		var now atomic.Pointer[wrongStream]
		var phase context.Context
		var end context.CancelFunc
		p.transport = "stream"
		p.stands = func(r *http.Request) (*http.Response, error) {
			wrong := now.Load()
			if wrong == nil || path.Base(r.URL.Path) != "items" {
				return nil, nil //nolint:nilnil // the control plane answers
			}
			version, err := p.plane.Clusters.Version(r.Context(), clusterID)
			must(err)
			ctx, cancel := context.WithCancel(phase)
			context.AfterFunc(r.Context(), cancel)
			return wrong.answer(r.WithContext(ctx), version), nil
		}
		at, right := p.withTwo(s)
		deployments := func(w *simtest.World) int { return len(w.Objects("deployments.apps")) }
		all := wrongStreams()
		if testing.Short() {
			all = all[4:] // the others are answers of proxies
		}
		s.Edit = func(w *simtest.World) {
			for n := range all {
				begin := 2*time.Minute + time.Duration(n)*each
				name := all[n].name
				w.After(begin+time.Minute, func() {
					p.log.Reset()
					phase, end = context.WithCancel(context.Background())
					now.Store(&all[n])
					p.plane.Cut()
					// The state of now lacks what is there: a few confirmations would have it deleted.
					p.plane.Vanish(at(1), "DELETE FROM services WHERE service_id = '"+uuid(11)+"'")
					p.putWeb(at(0), 2+3*n)
					w.Within(tick, name+": a change is applied", func(w *simtest.World) bool { return right(w) && deployments(w) == 2 })
				})
				w.After(begin+time.Minute+50*time.Second, func() { p.plane.Lose = func(name string) bool { return name == "desired-state" } })
				w.After(begin+4*time.Minute+10*time.Second, func() {
					if got := deployments(w); got != 2 && !all[n].names {
						w.Blame("%s: %d Deployments without a confirmation", name, got)
					}
					said := strings.Count(p.log.String(), "stream of versions: pulling until there is one")
					if says := all[n].says; says != "" && (said != 1 || !strings.Contains(p.log.String(), says)) {
						w.Blame("%s: the log says it %d times, want once and %q:\n%s", name, said, all[n].says, p.log.String())
					}
					if twice := `starbase.example.com/[^ ]*": GET https://starbase.example.com`; regexp.MustCompile(twice).MatchString(p.log.String()) {
						w.Blame("%s: the log names the request twice:\n%s", name, p.log.String())
					}
					p.putWeb(at(1), 1)
					p.plane.Lose = nil
				})
				w.After(begin+5*time.Minute+30*time.Second, func() {
					p.putWeb(at(0), 3+3*n)
					w.Within(tick, name+": a change comes with the ticker", right)
				})
				w.After(begin+6*time.Minute+10*time.Second, func() {
					now.Store(nil)
					end()
				})
				w.After(begin+7*time.Minute+20*time.Second, func() {
					if says := all[n].says; says != "" && !p.saysAgain("stream") {
						w.Blame("%s: the log does not say that the stream is back while it lasts:\n%s", name, p.log.String())
					}
					p.putWeb(at(0), 4+3*n)
					w.Within(time.Second, name+": a change comes at once", right)
				})
			}
		}
		s.Bounds, s.Prompt = nil, true
		s.Edits, s.Settle, s.Rest, s.Histories = 1, 2*time.Minute+time.Duration(len(all))*each, time.Minute, 1
		s.Disturbances = []applytest.Disturbance{}
	}))
}
