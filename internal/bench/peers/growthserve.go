package main

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// growthBookmarks is how often a watch has a bookmark, as from a kube-apiserver.
const growthBookmarks = time.Minute

// ServeHTTP implements http.Handler.
func (s *growthServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if at := slices.Index(path, "namespaces"); at >= 0 && len(path) == at+4 {
		s.one(w, r, path[at+2], path[at+1], path[at+3])
		return
	}
	form := slices.IndexFunc(s.world.forms, func(f growthForm) bool { return f.resource == path[len(path)-1] })
	query := r.URL.Query()
	switch {
	case form < 0:
		answer(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case query.Get("watch") == "":
		answer(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "this server streams lists: ask with sendInitialEvents")
	default:
		s.watch(w, r, form, query.Get("sendInitialEvents") == "true", query.Get("resourceVersion"))
	}
}

// one answers a request for one object.
func (s *growthServer) one(w http.ResponseWriter, r *http.Request, resource, namespace, name string) {
	i, err := strconv.Atoi(strings.TrimLeft(name[strings.LastIndexByte(name, '-')+1:], "0"))
	if strings.HasSuffix(name, "-0000000") {
		i, err = 0, nil
	}
	if err != nil || i >= s.n || s.world.name(i) != name || growthNamespace(i) != namespace ||
		s.world.forms[s.world.form(i)].resource != resource {
		notFound(w, resource, name)
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		state := s.state(i)
		s.mu.Unlock()
		if state.absent {
			notFound(w, resource, name)
			return
		}
		s.write(w, r, http.StatusOK, i, state)
	case http.MethodDelete:
		s.remove(w, r, i)
	case http.MethodPatch:
		if r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType) {
			answer(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "only server-side apply is known")
			return
		}
		s.apply(w, r, i)
	default:
		answer(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

// watch streams the objects of a form, if they are asked for, and its changes until the client
// goes.
func (s *growthServer) watch(w http.ResponseWriter, r *http.Request, form int, initial bool, from string) {
	shape := shapeOf(r.Header.Get("Accept"))
	w.Header().Set("Content-Type", shape.contentType(true))
	w.WriteHeader(http.StatusOK)
	kind := &s.kinds[form]
	flush := http.NewResponseController(w).Flush
	s.mu.Lock()
	next, reached := len(kind.log), s.version
	if !initial {
		// The changes after a version. Versions are as long as each other.
		next = slices.IndexFunc(kind.log, func(c growthChange) bool { return growthVersion(c.version) > from })
		if next < 0 {
			next = len(kind.log)
		}
	}
	s.mu.Unlock()
	if initial && (s.stream(w, shape, form) != nil || s.bookmark(w, shape, form, reached, true) != nil) {
		return
	}
	bookmarks := time.NewTicker(growthBookmarks)
	defer bookmarks.Stop()
	var events []byte
	for {
		s.mu.Lock()
		due, grown := kind.log[next:], s.grown
		reached = s.version
		s.mu.Unlock()
		next += len(due)
		events = events[:0]
		for _, change := range due {
			frame, texts := kind.events[shape][change.event()], s.texts(change.object, change.growthState)
			events = frame.of(events, &texts)
		}
		if _, err := w.Write(events); err != nil || flush() != nil {
			return
		}
		select {
		case <-grown:
		case <-bookmarks.C:
			if s.bookmark(w, shape, form, reached, false) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes all objects of a form in the order in which a server has them: by namespace, and
// then by name.
func (s *growthServer) stream(w http.ResponseWriter, shape growthShape, form int) error {
	const whole = 10 * growthNamespaces // so many objects lie in each namespace once
	frame := s.kinds[form].events[shape][addedEvent]
	var events []byte
	for namespace := range growthNamespaces {
		for block := 0; block+10*namespace < s.n; block += whole {
			for _, digit := range s.world.forms[form].digits {
				i := block + 10*namespace + digit
				if i >= s.n {
					break
				}
				s.mu.Lock()
				state := s.state(i)
				s.mu.Unlock()
				if state.absent {
					continue
				}
				texts := s.texts(i, state)
				events = frame.of(events, &texts)
			}
			if len(events) >= 1<<16 {
				if _, err := w.Write(events); err != nil {
					return err
				}
				events = events[:0]
			}
		}
	}
	_, err := w.Write(events)
	return err
}

// bookmark tells the version that a watch has reached, and whether all objects were told.
func (s *growthServer) bookmark(w http.ResponseWriter, shape growthShape, form int, reached uint64, complete bool) error {
	version := growthVersion(reached)
	metadata := metav1.ObjectMeta{ResourceVersion: version}
	if complete {
		metadata.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	var object kruntime.Object = &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: metadata,
	}
	if !shape.metadata {
		var err error
		if object, err = scheme.Scheme.New(s.world.forms[form].kind); err != nil {
			return err
		}
		object.GetObjectKind().SetGroupVersionKind(s.world.forms[form].kind)
		accessor, ok := object.(metav1.ObjectMetaAccessor)
		if !ok {
			return http.ErrNotSupported
		}
		accessor.GetObjectMeta().SetResourceVersion(version)
		accessor.GetObjectMeta().SetAnnotations(metadata.Annotations)
	}
	event, err := shape.event("BOOKMARK", object)
	if err == nil {
		_, err = w.Write(event)
	}
	return err
}
