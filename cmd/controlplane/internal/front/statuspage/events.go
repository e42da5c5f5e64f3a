package statuspage

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

const (
	// patience is how long a write to a viewer may be blocked before the viewer
	// counts as gone.
	patience = 15 * time.Second
	// streamAge is when a stream is ended. The browser opens the next, which
	// asks for the session again.
	streamAge = 10 * time.Minute
)

// event is one section as it is sent.
type event struct {
	Section string    `json:"section"`
	Now     time.Time `json:"now"`
	HTML    string    `json:"html"`
}

// rows is the answer with the lists.
type rows struct {
	Now      time.Time `json:"now"`
	Sections []part    `json:"sections"`
}

// part is a section that is a list, with the page of it.
type part struct {
	Section string `json:"section"`
	listing
	HTML string `json:"html"`
}

// list answers with the sections that are lists, as the view shows them.
func (p *Page) list(w http.ResponseWriter, r *http.Request, _ visitor) {
	p.api.Answer(func(w http.ResponseWriter, r *http.Request) error {
		v, err := viewOf(r)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		sections, err := p.feed.latest(ctx, v)
		if err != nil {
			return err
		}
		answer := rows{Now: time.Now().UTC()}
		for _, s := range sections {
			if l, ok := s.model.(listing); ok {
				answer.Sections = append(answer.Sections, part{s.Name, l, string(s.HTML)})
			}
		}
		return adminapi.WriteJSON(w, http.StatusOK, answer)
	})(w, r)
}

// recheck is the age from which a stream asks again whether its token or session is valid
// before it shows what has changed.
const recheck = time.Second

// watch sends the sections, and each again when it has changed.
func (p *Page) watch(w http.ResponseWriter, r *http.Request, who visitor) {
	v, err := viewOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := p.feed.refresh(r.Context()); err != nil {
		p.fail(w, r, "events", err)
		return
	}
	viewer := p.feed.join(who.sessionID)
	if viewer == nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many are watching; come back later", http.StatusServiceUnavailable)
		return
	}
	defer p.feed.leave(viewer)
	age := streamAge
	if !who.until.IsZero() {
		age = min(age, time.Until(who.until))
	}
	over := time.NewTimer(age)
	defer over.Stop()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	out := writer{w, http.NewResponseController(w)}
	// net/http would take the end of its read timeout for the end of the client.
	_ = out.control.SetReadDeadline(time.Time{})
	err = out.send("retry: 3000\n\n")
	heartbeat := time.NewTicker(p.heartbeat)
	defer heartbeat.Stop()
	seen, checked := map[string]uint64{}, time.Now()
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-p.feed.ended:
			return
		case <-over.C:
			return
		case <-viewer.dismissed:
			_ = out.send("event: end\ndata: {}\n\n")
			return
		case <-heartbeat.C:
			if !p.admitted(r) {
				return // the answer to its next request gives the reason
			}
			err = out.send(": still here\n\n")
		case <-viewer.wake:
			if time.Since(checked) > recheck {
				if checked = time.Now(); !p.admitted(r) {
					return
				}
			}
			err = p.send(out, seen, v)
		}
	}
	p.logger.DebugContext(r.Context(), "viewer has gone", slog.Any("error", err))
}

// send sends what the view shows of the sections that are newer than seen.
func (p *Page) send(out writer, seen map[string]uint64, v view) error {
	sections, err := p.feed.since(seen, v)
	if err != nil {
		return err
	}
	for _, s := range sections {
		// JSON has no line ends inside, so the HTML cannot end the event.
		data, err := json.Marshal(event{Section: s.Name, Now: time.Now().UTC(), HTML: string(s.HTML)})
		if err != nil {
			return err
		}
		if err := out.send("event: section\ndata: " + string(data) + "\n\n"); err != nil {
			return err
		}
	}
	return nil
}

// writer gives each event its own time, for a stream has no end.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w writer) send(text string) error {
	// Recorders and the like know no deadline.
	_ = w.control.SetWriteDeadline(time.Now().Add(patience))
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	err := w.control.Flush()
	_ = w.control.SetWriteDeadline(time.Time{})
	return err
}
