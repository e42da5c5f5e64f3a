package simtest

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// record notes a request and its answer. changed is whether it changed an object, and moved
// whether it changed managedFields alone.
func (p *process) record(request applytest.Request, answer *http.Response, err error, changed, moved bool) {
	w := p.world
	refused := err == nil && answer.StatusCode >= http.StatusBadRequest
	what := request.String()
	switch accepted := request.Writes() && err == nil && !refused; {
	case accepted && moved && !changed:
		what += changedOwners
	case accepted && !changed:
		what += changedNothing
	}
	if err == nil && answer.Header.Get("Content-Type") == "text/html" {
		what += " (a page)"
	}
	switch {
	case err != nil:
		w.Log("life %d: %s: %v", p.life, what, err)
	case refused || request.Verb == "create":
		w.Log("life %d: %s: %d%s", p.life, what, answer.StatusCode, about(answer))
	default:
		w.Log("life %d: %s: %d", p.life, what, answer.StatusCode)
	}
	if request.Writes() && !refused {
		w.mu.Lock()
		if err == nil && request.Group != "coordination.k8s.io" && request.Resource != "events" {
			w.accepted++
		}
		if request.Group == "coordination.k8s.io" {
			w.leads = true
		} else if !w.reannounces || request.Verb != "create" || request.Resource != "events" {
			w.writes = append(w.writes, what)
		}
		w.mu.Unlock()
	}
}

// served reports whether the answer of a list or watch is one that its reader can
// use. A watch that is refused because of its options is followed by a list.
func served(answer *http.Response) bool {
	return answer.Header.Get("Content-Type") != "text/html" &&
		(answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusUnprocessableEntity)
}

// about is what an answer says: why a request was refused, or the name of what was
// created.
func about(answer *http.Response) string {
	data, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(data))
	if err != nil {
		return ""
	}
	o, err := decode(data)
	switch text := o.text("message"); {
	case err != nil:
		return ""
	case answer.StatusCode >= http.StatusBadRequest && text != "":
		return " " + text
	default:
		return strings.TrimRight(" "+o.Name(), " ")
	}
}
