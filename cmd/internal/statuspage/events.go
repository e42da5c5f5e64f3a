package statuspage

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
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

// watch sends the sections, and each again when it has changed.
func (p *Page) watch(w http.ResponseWriter, r *http.Request, who visitor) {
	if _, err := p.feed.latest(r.Context()); err != nil {
		p.fail(w, r, "events", err)
		return
	}
	v := p.feed.join(who.sessionID)
	if v == nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many are watching; come back later", http.StatusServiceUnavailable)
		return
	}
	defer p.feed.leave(v)
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
	err := out.send("retry: 3000\n\n")
	heartbeat := time.NewTicker(p.heartbeat)
	defer heartbeat.Stop()
	seen := map[string]uint64{}
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-p.feed.ended:
			return
		case <-over.C:
			return
		case <-v.dismissed:
			_ = out.send("event: end\ndata: {}\n\n")
			return
		case <-heartbeat.C:
			if !p.admitted(r) {
				return // it is told by what it asks next
			}
			err = out.send(": still here\n\n")
		case <-v.wake:
			err = p.send(out, seen)
		}
	}
	p.logger.DebugContext(r.Context(), "viewer has gone", slog.Any("error", err))
}

// send sends the sections that are newer than seen.
func (p *Page) send(out writer, seen map[string]uint64) error {
	sections, err := p.feed.since(seen)
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
