package controlplanetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// The habits of the control plane of a simulated world, and of the link to it.
const (
	restartPlane applytest.Disturbance = "restart the control plane at"
	lockDatabase applytest.Disturbance = "lock the database from"
	loseLink     applytest.Disturbance = "lose requests to the control plane from"
	cutLink      applytest.Disturbance = "cut answers of the control plane from"
	proxyLink    applytest.Disturbance = "show a page in place of the control plane from"
	slowLink     applytest.Disturbance = "slow down the control plane from"
	silentLink   applytest.Disturbance = "silence the control plane from"
	rotateToken  applytest.Disturbance = "rotate the token of the agent at"
)

// Habits returns the habits, for Scenario.Habits.
func (p *Simulated) Habits() []simtest.Habit {
	act := func(do func(w *simtest.World)) func(*simtest.World, applytest.Request) {
		return func(w *simtest.World, _ applytest.Request) { do(w) }
	}
	all := []simtest.Habit{
		{
			Name: restartPlane, Does: "The control plane ends, and is away for up to two minutes.", Spell: 2 * time.Minute,
			Act: act(func(*simtest.World) { p.Restart() }),
		},
		{Name: lockDatabase, Does: "The control plane answers 503 for up to a minute.", Spell: time.Minute},
		{Name: loseLink, Does: "Half of the requests to the control plane, or their answers, are lost for up to a minute.", Spell: time.Minute},
		{
			Name: cutLink, Does: "Streams and answers of the control plane end in the middle for up to a minute.", Spell: time.Minute,
			Act: act(func(*simtest.World) { p.Cut() }),
		},
		{Name: proxyLink, Does: "A proxy answers in place of the control plane for up to a minute.", Spell: time.Minute},
		{Name: slowLink, Does: "Answers of the control plane take up to 25 seconds for up to a minute.", Spell: time.Minute},
		{
			Name: silentLink, Does: "Streams and requests that are open bring nothing any more, and new ones neither for up to a minute.",
			Spell: time.Minute, Act: act(func(*simtest.World) { p.Silence() }),
		},
	}
	if rotate := p.simulation.Rotate; rotate != nil {
		all = append(all, simtest.Habit{
			Name: rotateToken, Does: "The token of the agent is another one, which it has up to 30 seconds later.",
			Act: act(func(w *simtest.World) {
				p.newest = rotate(p.ctx(), p)
				w.After(time.Duration(w.Dice("rotate").IntN(30_000))*time.Millisecond, func() { p.SetToken(p.newest) })
			}),
		})
	}
	return all
}

// Begin lets one of the habits begin, unless the world has no faults.
func (p *Simulated) Begin(w *simtest.World, h simtest.Habit) {
	if !w.Faulty() {
		return
	}
	w.Log("%s now", h.Name)
	w.Disturb(time.Now())
	if h.Act != nil {
		h.Act(w, applytest.Request{})
	}
	if h.Spell > 0 {
		p.spells[h.Name] = time.Now().Add(time.Duration(w.Random.Int64N(int64(h.Spell))))
		w.Disturb(p.spells[h.Name])
	}
}

// Lasts reports whether a habit lasts.
func (p *Simulated) Lasts(w *simtest.World, name applytest.Disturbance) bool {
	return w.Lasts(name) || w.Faulty() && time.Now().Before(p.spells[name])
}

// Link returns a transport to the control plane, for one life of the agent. net is the transport
// that Scenario.Program got. Each request takes its turn, as in simtest.Call.
func (p *Simulated) Link(net http.RoundTripper) http.RoundTripper { return link{p, net} }

// Direct returns a transport without habits to the control plane, for a test in a bubble without a
// world. Lose has its effect.
func (p *Simulated) Direct() http.RoundTripper { return direct{p} }

type direct struct{ plane *Simulated }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	switch method := path.Base(r.URL.Path); {
	case d.plane.Lose != nil && d.plane.Lose(method):
		return nil, errLink
	case strings.HasPrefix(method, "Watch"):
		s := d.plane.stream(r, body, 0)
		return s.answer(r.Context(), &http.Response{Body: s})
	}
	recorder := httptest.NewRecorder()
	d.plane.replica.handler.ServeHTTP(recorder, received(r.Context(), r, body))
	return recorder.Result(), nil
}

type link struct {
	plane *Simulated
	net   http.RoundTripper
}

var errLink = errors.New("connection reset by peer")

// way is how one request goes.
type way struct {
	world *simtest.World
	roll  func(int) int
	wait  time.Duration // of its answer, and of what a stream brings
	muted bool          // its answer does not come
}

// RoundTrip implements http.RoundTripper.
func (l link) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	var body []byte
	if r.Body != nil {
		if body, err = io.ReadAll(r.Body); err == nil {
			err = r.Body.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	name := r.Method + " " + path.Base(r.URL.Path)
	var through way
	err = simtest.Call(r.Context(), l.net, name, func(w *simtest.World) (err error) {
		through = way{world: w, roll: w.Dice("link " + name).IntN, muted: l.plane.Lasts(w, silentLink)}
		if l.plane.Lasts(w, slowLink) {
			through.wait = time.Duration(1+w.Dice("slow "+name).IntN(25_000)) * time.Millisecond
		}
		answer, err = l.plane.answer(through, r, body) //nolint:bodyclose // the caller does
		return err
	})
	switch ctx := r.Context(); {
	case err != nil:
		return nil, err
	case through.muted:
		<-ctx.Done()
		return nil, ctx.Err()
	case through.wait > 0 && !pause.For(ctx, through.wait):
		return nil, ctx.Err()
	}
	if s, streams := answer.Body.(*stream); streams {
		return s.answer(r.Context(), answer)
	}
	return answer, nil
}

// answer carries out a request, with what the habits do to it.
func (p *Simulated) answer(through way, r *http.Request, body []byte) (*http.Response, error) {
	w, roll := through.world, through.roll
	lost, cut := p.Lasts(w, loseLink) && roll(2) == 0, p.Lasts(w, cutLink) && roll(2) == 0
	recorder := httptest.NewRecorder()
	switch {
	case p.Lasts(w, restartPlane), lost && roll(2) == 0, p.Lose != nil && p.Lose(path.Base(r.URL.Path)):
		return nil, errLink
	case p.Lasts(w, proxyLink):
		foreign(recorder, roll)
	case p.Lasts(w, lockDatabase):
		recorder.Header().Set("Retry-After", "1")
		recorder.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(path.Base(r.URL.Path), "Watch"), r.URL.Query().Has("watch"):
		s := p.stream(r, body, through.wait)
		if cut {
			s.room = 1 + roll(2000)
		}
		return &http.Response{Body: s}, nil
	default:
		p.replica.handler.ServeHTTP(recorder, received(r.Context(), r, body))
	}
	if lost {
		return nil, errLink
	}
	answer := recorder.Result()
	body = recorder.Body.Bytes()
	if answer.StatusCode != http.StatusOK {
		w.Log("control plane: %d %.200s", answer.StatusCode, body)
	}
	if p.Answer != nil && answer.StatusCode == http.StatusOK {
		body = p.Answer(w, r, body)
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

// received is the request as the server has it.
func received(ctx context.Context, r *http.Request, body []byte) *http.Request {
	other := httptest.NewRequestWithContext(ctx, r.Method, r.URL.RequestURI(), bytes.NewReader(body))
	other.Header, other.Host = r.Header.Clone(), r.URL.Host
	other.Proto, other.ProtoMajor, other.ProtoMinor = "HTTP/2.0", 2, 0
	return other
}

// foreign is an answer that is not one of the control plane.
func foreign(w http.ResponseWriter, roll func(int) int) {
	page := "<html><body>Log in</body></html>"
	w.Header().Set("Content-Type", "text/html")
	switch roll(6) {
	case 0:
		w.WriteHeader(http.StatusBadGateway)
	case 1:
		page = ""
	case 2:
		page = "{}"
	case 3:
		w.Header().Set("Location", "https://login.example.com/")
		w.WriteHeader(http.StatusFound)
	case 4:
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = fmt.Fprint(w, page) // a recorder takes everything
}

type brokenReader struct{}

// Read implements io.Reader.
func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
