package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// growthServer serves n objects of a growthWorld as a kube-apiserver does that has them: streamed
// lists and watches of whole objects or metadata, in protobuf or JSON, reads, server-side applies
// and deletions with preconditions. It does not look at selectors: all objects are selected. An
// apply must state what the object is: it is created if it is absent, and left as it is otherwise.
type growthServer struct {
	world  growthWorld
	n      int
	kinds  []growthKind
	hashes []diff.Sum

	mu      sync.Mutex
	changed map[int]growthState // those that are not as at the start
	version uint64
	grown   chan struct{} // closed at the next change
}

// growthKind is the encodings of the objects of a form, and their changes.
type growthKind struct {
	objects map[growthShape]growthFrame
	events  map[growthShape]map[string]growthFrame // by type
	log     []growthChange                         // guarded by the lock of the server
}

// growthState is an object in its version, made as the nth one of its name.
type growthState struct {
	version, made uint64
	absent        bool
}

type growthChange struct {
	object int
	growthState
}

// event is the type of the change as a watch has it.
func (c growthChange) event() string {
	if c.absent {
		return deletedEvent
	}
	return addedEvent
}

const addedEvent, deletedEvent = "ADDED", "DELETED"

// newGrowthServer takes for each form the object that a real server has of the sample.
func newGrowthServer(world growthWorld, n int, samples [][]byte) (*growthServer, error) {
	s := &growthServer{
		world: world, n: n, kinds: make([]growthKind, len(world.forms)), hashes: make([]diff.Sum, n),
		changed: map[int]growthState{}, version: uint64(n), grown: make(chan struct{}), //nolint:gosec // is positive
	}
	for form := range world.forms {
		if err := s.learn(form, samples[form]); err != nil {
			return nil, fmt.Errorf("%s: %w", world.forms[form].kind.Kind, err)
		}
	}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for worker := range runtime.NumCPU() {
		all.Go(func() {
			for i := worker; i < n; i += runtime.NumCPU() {
				var err error
				if s.hashes[i], err = world.hash(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	all.Wait()
	return s, errors.Join(errs...)
}

// learn encodes the sample of a form in each shape.
func (s *growthServer) learn(form int, sample []byte) error {
	const version = 7_777_777
	i := growthSample + s.world.forms[form].digits[0]
	hash, err := s.world.hash(i)
	if err != nil {
		return err
	}
	texts := s.world.texts(i, hash.String(), version, 0)
	live := &unstructured.Unstructured{}
	if err := live.UnmarshalJSON(sample); err != nil {
		return err
	}
	if got := live.GetName(); got != texts[0] {
		return fmt.Errorf("the sample is %q, must be %q", got, texts[0])
	}
	live.SetUID(types.UID(growthUID(i, 0)))
	live.SetResourceVersion(growthVersion(version))
	whole, err := scheme.Scheme.New(s.world.forms[form].kind)
	if err != nil {
		return err
	}
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(live.Object, whole); err != nil {
		return err
	}
	var metadata metav1.PartialObjectMetadata
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &metadata); err != nil {
		return err
	}
	metadata.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	kind := &s.kinds[form]
	kind.objects, kind.events = map[growthShape]growthFrame{}, map[growthShape]map[string]growthFrame{}
	for _, shape := range []growthShape{{true, true}, {true, false}, {false, true}, {false, false}} {
		var object kruntime.Object = &metadata
		if !shape.metadata {
			object = whole
		}
		encoded, err := shape.encode(object)
		if err != nil {
			return err
		}
		kind.objects[shape] = newGrowthFrame(encoded, texts)
		kind.events[shape] = map[string]growthFrame{}
		for _, event := range []string{addedEvent, deletedEvent} {
			if encoded, err = shape.event(event, object); err != nil {
				return err
			}
			kind.events[shape][event] = newGrowthFrame(encoded, texts)
		}
	}
	return nil
}

// state is an object as it is now. The lock is held.
func (s *growthServer) state(i int) growthState {
	if changed, ok := s.changed[i]; ok {
		return changed
	}
	return growthState{version: uint64(i)} //nolint:gosec // is positive
}

// change records a change of an object. The lock is held.
func (s *growthServer) change(i int, to growthState) growthState {
	s.version++
	to.version = s.version
	s.changed[i] = to
	kind := &s.kinds[s.world.form(i)]
	kind.log = append(kind.log, growthChange{i, to})
	close(s.grown)
	s.grown = make(chan struct{})
	return to
}

func (s *growthServer) texts(i int, state growthState) growthTexts {
	return s.world.texts(i, s.hashes[i].String(), state.version, state.made)
}

// condition is what a request states of the object that it is about.
type condition struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// violated returns why an object does not meet it, "" if it does.
func (c condition) violated(i int, state growthState) string {
	switch uid, version := growthUID(i, state.made), growthVersion(state.version); {
	case c.UID != "" && c.UID != uid:
		return fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", c.UID, uid)
	case c.ResourceVersion != "" && c.ResourceVersion != version:
		return fmt.Sprintf("Precondition failed: version in precondition: %s, version in object meta: %s", c.ResourceVersion, version)
	default:
		return ""
	}
}

// remove answers a deletion.
func (s *growthServer) remove(w http.ResponseWriter, r *http.Request, i int) {
	var options struct {
		Preconditions condition `json:"preconditions"`
	}
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(i)
	if state.absent {
		notFound(w, s.world.forms[s.world.form(i)].resource, s.world.name(i))
		return
	}
	if why := options.Preconditions.violated(i, state); why != "" {
		answer(w, http.StatusConflict, metav1.StatusReasonConflict, why)
		return
	}
	state.absent = true
	s.change(i, state)
	answer(w, http.StatusOK, "", "")
}

// apply answers a server-side apply.
func (s *growthServer) apply(w http.ResponseWriter, r *http.Request, i int) {
	var stated struct {
		Metadata struct {
			condition
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(r.Body).Decode(&stated); err != nil {
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	want := s.hashes[i].String()
	if hash, ok := stated.Metadata.Annotations[s.world.owner().Domain+"/desired-hash"]; ok && hash != want {
		answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf("the hash is %s, must be %s", hash, want))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, code := s.state(i), http.StatusOK
	switch why := stated.Metadata.violated(i, state); {
	case state.absent && stated.Metadata.UID != "":
		notFound(w, s.world.forms[s.world.form(i)].resource, s.world.name(i))
		return
	case state.absent:
		code = http.StatusCreated
		made := growthState{version: s.version + 1, made: state.made + 1}
		if state = made; r.URL.Query().Get("dryRun") == "" {
			state = s.change(i, made)
		}
	case why != "":
		answer(w, http.StatusConflict, metav1.StatusReasonConflict, why)
		return
	}
	s.write(w, r, code, i, state)
}

// write answers with an object.
func (s *growthServer) write(w http.ResponseWriter, r *http.Request, code, i int, state growthState) {
	shape, texts := shapeOf(r.Header.Get("Accept")), s.texts(i, state)
	frame := s.kinds[s.world.form(i)].objects[shape]
	w.Header().Set("Content-Type", shape.contentType(false))
	w.WriteHeader(code)
	_, _ = w.Write(frame.of(nil, &texts)) // a client that is gone reports it
}

// answer writes a status; without a reason it is a success.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: int32(code), //nolint:gosec // is small
	}
	if reason != "" {
		status.Status, status.Reason, status.Message = metav1.StatusFailure, reason, message
	}
	w.Header().Set("Content-Type", kruntime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

func notFound(w http.ResponseWriter, resource, name string) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound,
		Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf("%s %q not found", resource, name),
		Details: &metav1.StatusDetails{Name: name, Kind: resource},
	}
	w.Header().Set("Content-Type", kruntime.ContentTypeJSON)
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(status)
}
