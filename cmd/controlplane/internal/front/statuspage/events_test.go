package statuspage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

const (
	eventually = time.Minute
	tick       = 5 * time.Millisecond
)

// stream is a viewer.
type stream struct {
	t      *testing.T
	status int
	header http.Header
	// lines has the lines that were sent, without the empty ones; closed at the end.
	lines chan string
	stop  context.CancelFunc
}

func serveHandler(t *testing.T, handler http.Handler) string {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	return web.URL
}

// open begins to watch, with headers in pairs.
func (w *world) open(header ...string) *stream {
	w.t.Helper()
	return w.openAt("/status/events", header...)
}

func (w *world) openAt(path string, header ...string) *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, http.NoBody)
	require.NoError(w.t, err)
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r) //nolint:bodyclose // closed by the reader below
	require.NoError(w.t, err)
	s := &stream{t: w.t, status: response.StatusCode, header: response.Header, lines: make(chan string), stop: cancel}
	go func() {
		defer close(s.lines)
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadString('\n')
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				select {
				case s.lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (w *world) watch() *stream {
	w.t.Helper()
	s := w.open("Authorization", "Bearer "+adminToken)
	require.Equal(w.t, 200, s.status)
	return s
}

// until reads up to a line for which holds returns true, and returns it; "" at the end
// of the stream.
func (s *stream) until(holds func(line string) bool) string {
	s.t.Helper()
	deadline := time.After(eventually)
	for {
		select {
		case line, open := <-s.lines:
			if !open || holds(line) {
				return line
			}
		case <-deadline:
			s.t.Fatal("nothing of that kind was sent")
		}
	}
}

// section reads up to an event about the section whose HTML has part.
func (s *stream) section(name, part string) string {
	s.t.Helper()
	var html string
	s.until(func(line string) bool {
		data, found := strings.CutPrefix(line, "data: ")
		if !found {
			return false
		}
		var event struct {
			Section, HTML string
			Now           time.Time
		}
		require.NoError(s.t, json.Unmarshal([]byte(data), &event), data)
		html = event.HTML
		return event.Section == name && strings.Contains(event.HTML, part)
	})
	require.Contains(s.t, html, part)
	return html
}

func (s *stream) close() {
	s.stop()
	s.until(func(string) bool { return false })
}

// metric returns the value of a metric without labels.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
	return 0
}

func TestAChangeReachesEveryViewer(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{Interval: 20 * time.Millisecond}, func(w *world) {
		t := w.t
		viewers := []*stream{w.watch(), w.open("Cookie", w.login()), w.watch()}
		for _, v := range viewers {
			require.Equal(t, "text/event-stream; charset=utf-8", v.header.Get("Content-Type"))
			require.Equal(t, "no-store", v.header.Get("Cache-Control"))
			v.section("regions", "No region is registered.")
		}
		w.register(clusterA, "nyc3", 1)
		for _, v := range viewers {
			v.section("clusters", "1</b> unknown")
		}
		w.report(clusterA, [3]string{"Rejected", "Bad", evil})
		for _, v := range viewers {
			html := v.section("clusters", "1</b> rejected")
			require.NotContains(t, html, "<script>")
			require.Contains(t, html, "&lt;script&gt;")
		}
		w.capacity(clusterA, 77, time.Now())
		viewers[0].section("capacity", "<b>77</b> of 1,000 pods")
		w.admin("PUT", "regions/reg_eu", map[string]any{"name": "eu-1", "platform": "aws"})
		viewers[0].section("regions", "never seen")
		for _, v := range viewers {
			v.close()
		}
		await.Until(
			t,
			eventually,
			`w.metric("trueup_controlplane_status_viewers") == 0`,
			func() bool { return w.metric("trueup_controlplane_status_viewers") == 0 },
		)
	})
}

func TestTheDatabaseIsReadOnceForAllViewersAndNotAtAllForNone(t *testing.T) {
	t.Parallel()
	// Longer than the test: a second look would be one too many.
	w := small(t, statuspage.Config{Interval: time.Hour})
	const looks = "trueup_controlplane_status_looks_total"
	require.Zero(t, w.metric(looks))
	for range 20 {
		w.shown()
		w.watch().section("clusters", "No cluster")
	}
	require.InDelta(t, 20, w.metric("trueup_controlplane_status_viewers"), 0)
	require.InDelta(t, 1, w.metric(looks), 0)
}

func TestASilentStreamHasAHeartbeatAndEndsWithTheServer(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Heartbeat: 10 * time.Millisecond})
	s := w.watch()
	for range 3 {
		require.NotEmpty(t, s.until(func(line string) bool { return strings.HasPrefix(line, ":") }))
	}
	w.stop()
	require.Empty(t, s.until(func(string) bool { return false }), "the stream ends")
	require.Empty(t, w.watch().until(func(string) bool { return false }), "and no other begins")
}

func TestViewersAreBounded(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{MaxViewers: 2})
	first, second := w.watch(), w.watch()
	third := w.open("Authorization", "Bearer "+adminToken)
	require.Equal(t, 503, third.status)
	require.NotEmpty(t, third.header.Get("Retry-After"))
	third.close()
	first.close()
	await.Until(t, eventually, "a place that was left is free", func() bool {
		next := w.open("Authorization", "Bearer "+adminToken)
		defer next.close()
		return next.status == 200
	})
	second.section("clusters", "No cluster")
}

func TestALogoutEndsTheStreamsOfItsSession(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	mine, other := w.login(), w.login()
	stream, untouched := w.open("Cookie", mine), w.open("Cookie", other)
	stream.section("regions", "No region")
	require.Equal(t, 303, w.send("POST", "/status/logout", url.Values{}, "Cookie", mine).status)
	require.Equal(t, "event: end", stream.until(func(line string) bool { return strings.HasPrefix(line, "event: end") }))
	stream.until(func(string) bool { return false })
	require.Equal(t, 401, w.open("Cookie", mine).status)
	untouched.section("regions", "No region")
}

// stuck is the connection of a viewer that takes nothing.
type stuck struct {
	header   http.Header
	entered  chan struct{}
	released chan struct{}
}

func (s *stuck) Header() http.Header { return s.header }

func (s *stuck) WriteHeader(int) {}

func (s *stuck) Write([]byte) (int, error) {
	s.entered <- struct{}{}
	<-s.released
	return 0, io.ErrClosedPipe
}

func TestAViewerThatTakesNothingHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Interval: 5 * time.Millisecond})
	w.register(clusterA, "nyc3", 1)
	slow := &stuck{header: http.Header{}, entered: make(chan struct{}), released: make(chan struct{})}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status/events", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+adminToken)
			w.page.ServeHTTP(slow, r)
		})
		<-slow.entered
	}
	s := w.watch()
	for n := range 3 {
		class := string(rune('A' + n))
		w.report(clusterA, [3]string{"Rejected", "Class" + class, "no"})
		s.section("clusters", "Class"+class)
	}
	require.InDelta(t, 4, w.metric("trueup_controlplane_status_viewers"), 0)
	close(slow.released)
	group.Wait()
	await.Until(
		t,
		eventually,
		`w.metric("trueup_controlplane_status_viewers") == 1`,
		func() bool { return w.metric("trueup_controlplane_status_viewers") == 1 },
	)
}

// TestAStreamEndsWithItsToken has a token that expires, and one that is removed, with no
// heartbeat that would notice.
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	short, _ := tokens.New()
	removed, _ := tokens.New()
	path := filepath.Join(t.TempDir(), "tokens")
	file := &tokens.File{Path: path, Logger: slog.New(slog.DiscardHandler)}
	write := func(lines ...string) {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
		require.NoError(t, file.Read(t.Context()))
	}
	ends := time.Now().Add(1500 * time.Millisecond)
	write("expires="+ends.Format(time.RFC3339Nano)+" "+short, "name=gone "+removed)
	page, err := statuspage.New(
		statuspage.Config{Database: w.database, Admins: file.Admins, Heartbeat: time.Hour, Interval: 10 * time.Millisecond},
	)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- page.Start(ctx) }()
	api := w.url
	w.url = serveHandler(t, page)
	session := func(token string) string {
		answer := w.send("POST", "/status/login", url.Values{"token": {token}})
		require.Equal(t, 303, answer.status, answer.body)
		cookie, _, _ := strings.Cut(answer.header.Get("Set-Cookie"), ";")
		return cookie
	}
	cookie := session(short)
	streams := []*stream{w.open("Authorization", "Bearer "+short), w.open("Cookie", cookie)}
	others := []*stream{w.open("Authorization", "Bearer "+removed), w.open("Cookie", session(removed))}
	for _, s := range append(streams, others...) {
		require.Equal(t, 200, s.status)
		s.section("regions", "No region")
	}
	for _, s := range streams {
		s.until(func(string) bool { return false })
	}
	require.False(t, time.Now().Before(ends))
	require.Equal(t, 303, w.get("/status", "Cookie", cookie).status, "the session has ended, too")
	write("name=wall role=reader "+removed, short)
	beating, err := statuspage.New(
		statuspage.Config{Database: w.database, Admins: file.Admins, Heartbeat: 20 * time.Millisecond, Interval: time.Hour},
	)
	require.NoError(t, err)
	go func() { ended <- beating.Start(ctx) }()
	quiet := w.url
	w.url = serveHandler(t, beating)
	third := w.open("Authorization", "Bearer "+removed)
	third.section("regions", "No region")
	w.url = quiet
	write(short)
	third.until(func(string) bool { return false })
	w.url = api
	w.register(clusterA, "nyc3", 1)
	for _, s := range others {
		require.Empty(t, s.until(func(line string) bool { return strings.Contains(line, clusterA) }), "it ends before it shows what came later")
	}
	cancel()
	for range 2 {
		require.NoError(t, <-ended)
	}
}
