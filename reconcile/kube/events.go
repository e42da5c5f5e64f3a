package kube

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// The types of Events.
const (
	EventNormal  = "Normal"
	EventWarning = "Warning"
)

// EventsResource is the resource of Events.
func EventsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
}

// maxNote is how many bytes the API server takes as a note.
const maxNote = 1024

// How Events are written.
const (
	// eventsWaiting is how many may wait to be written. More are dropped, and logged.
	eventsWaiting = 1000
	// eventsKept is for how many Events a repetition is known, and eventRepeats for how long.
	eventsKept   = 10000
	eventRepeats = 10 * time.Minute
	// eventSeries is how often repetitions are written.
	eventSeries  = time.Minute
	eventTimeout = 10 * time.Second
)

// Events writes Events (events.k8s.io/v1) about objects in the background: a pass waits for none
// of them. An Event that repeats within ten minutes, with the same note, becomes a series: its
// count is written once a minute. All fields are required. It needs create and patch on events,
// and is safe for concurrent use.
//
// An Event repeats what the status of its object has: one that cannot be written is logged, and
// lost, as are those that wait when Start ends.
type Events struct {
	// Client reaches the API server.
	Client dynamic.Interface
	// Controller is the reporting controller, such as example.com/operator, and Instance
	// its process.
	Controller, Instance string
	// Logger gets a line for each Event that is not recorded.
	Logger *slog.Logger

	once    sync.Once
	waiting chan *unstructured.Unstructured
}

// Record hands an Event about an object of a kind to Start. One about a cluster-scoped object is
// in the namespace default. A note is cut at 1024 bytes.
func (e *Events) Record(kind schema.GroupVersionKind, about metav1.Object, eventType, reason, note string) {
	select {
	case e.queue() <- e.event(kind, about, eventType, reason, note):
	default:
		e.Logger.Warn("event queue full, event dropped", slog.String("reason", reason))
	}
}

func (e *Events) queue() chan *unstructured.Unstructured {
	e.once.Do(func() { e.waiting = make(chan *unstructured.Unstructured, eventsWaiting) })
	return e.waiting
}

// Start writes Events until ctx ends, and returns nil then.
func (e *Events) Start(ctx context.Context) error {
	known := map[eventKey]*series{}
	var due <-chan time.Time // while a repetition is known
	for {
		if due == nil && len(known) > 0 {
			due = time.After(eventSeries)
		}
		select {
		case <-ctx.Done():
			return nil
		case event := <-e.queue():
			e.observed(ctx, known, event)
		case now := <-due:
			due = nil
			for key, s := range known {
				if s.count > s.written {
					e.repeat(ctx, s)
				}
				if now.Sub(s.last) > eventRepeats {
					delete(known, key)
				}
			}
		}
	}
}

// eventKey tells Events that repeat each other.
type eventKey struct {
	about types.UID
	what  [sha256.Size]byte // type, reason and note
}

// series is an Event that may repeat. The times are of this process.
type series struct {
	namespace, name string
	count, written  int64
	last            time.Time
}

// observed writes an Event, unless it repeats one: then its time has come with the next look.
func (e *Events) observed(ctx context.Context, known map[eventKey]*series, event *unstructured.Unstructured) {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(event.Object, fields...)
		return s
	}
	key := eventKey{
		types.UID(text("regarding", "uid")), sha256.Sum256([]byte(text("type") + "\x00" + text("reason") + "\x00" + text("note"))),
	}
	if s := known[key]; s != nil && time.Since(s.last) <= eventRepeats {
		s.count, s.last = s.count+1, time.Now()
		return
	}
	limited, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	made, err := e.Client.Resource(EventsResource()).Namespace(event.GetNamespace()).Create(limited, event, metav1.CreateOptions{})
	if err != nil {
		e.lost(ctx, text("reason"), err)
		return
	}
	if len(known) < eventsKept {
		known[key] = &series{made.GetNamespace(), made.GetName(), 1, 1, time.Now()}
	}
}

// repeat writes how often an Event was observed.
func (e *Events) repeat(ctx context.Context, s *series) {
	limited, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	patch := fmt.Appendf(nil, `{"series":{"count":%d,"lastObservedTime":%q}}`, s.count, s.last.UTC().Format(metav1.RFC3339Micro))
	_, err := e.Client.Resource(EventsResource()).Namespace(s.namespace).
		Patch(limited, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if s.written = s.count; err != nil {
		s.last = time.Time{} // the next is an Event of its own: this one may have expired
		e.lost(ctx, s.name, err)
	}
}

func (e *Events) lost(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		e.Logger.WarnContext(ctx, "event not recorded", slog.String("event", what), slog.Any("error", err))
	}
}

func (e *Events) event(kind schema.GroupVersionKind, about metav1.Object, eventType, reason, note string) *unstructured.Unstructured {
	namespace := about.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	regarding := map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "name": about.GetName(), "uid": string(about.GetUID()),
	}
	if about.GetNamespace() != "" {
		regarding["namespace"] = about.GetNamespace()
	}
	if version := about.GetResourceVersion(); version != "" {
		regarding["resourceVersion"] = version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":            map[string]any{"generateName": about.GetName() + "-", "namespace": namespace},
		"eventTime":           time.Now().UTC().Format(metav1.RFC3339Micro),
		"reportingController": e.Controller, "reportingInstance": e.Instance, "action": "Reconcile",
		"type": eventType, "reason": reason, "note": strings.ToValidUTF8(note[:min(len(note), maxNote)], ""), "regarding": regarding,
	}}
}
