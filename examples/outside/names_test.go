package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// names is a service of names: a record for each, and a version that each write changes.
type names struct {
	mu      sync.Mutex
	records map[string]record
	etags   map[string]string
	writes  int
}

// set changes a record as another client does, with nil for a deletion.
func (n *names) set(name string, r *record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.write(name, r)
}

func (n *names) write(name string, r *record) {
	if n.records == nil {
		n.records, n.etags = map[string]record{}, map[string]string{}
	}
	n.writes++
	if r == nil {
		delete(n.records, name)
		return
	}
	n.records[name], n.etags[name] = *r, fmt.Sprintf("%q", fmt.Sprint(n.writes))
}

// all returns a copy of all records.
func (n *names) all() map[string]record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.records)
}

// ServeHTTP implements http.Handler.
func (n *names) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/records/")
	have, exists := n.records[name]
	etag := n.etags[name]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case r.Method == http.MethodGet && !exists:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", etag)
		_ = json.NewEncoder(w).Encode(have) // the client has gone
	case match == "" && none == "":
		w.WriteHeader(http.StatusPreconditionRequired)
	case none == "*" && exists, match != "" && (!exists || match != etag):
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodDelete:
		n.write(name, nil)
		w.WriteHeader(http.StatusNoContent)
	default:
		var want record
		if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		n.write(name, &want)
		w.WriteHeader(http.StatusNoContent)
	}
}
