package kube

import (
	"context"
	"log/slog"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// The types of Events.
const (
	EventNormal  = "Normal"
	EventWarning = "Warning"
)

// maxNote is how many bytes the API server takes as a note.
const maxNote = 1024

// Events writes Events (events.k8s.io/v1) about objects. All fields are required. It needs create
// on events, and is safe for concurrent use.
type Events struct {
	// Client reaches the API server.
	Client dynamic.Interface
	// Controller is the reporting controller, such as example.com/operator, and Instance
	// its process.
	Controller, Instance string
	// Logger gets a line for each Event that is not recorded.
	Logger *slog.Logger
}

// New returns an Event about an object of a kind. One about a cluster-scoped object is in the
// namespace default. A note is cut at 1024 bytes.
func (e *Events) New(kind schema.GroupVersionKind, about metav1.Object, eventType, reason, note string) *unstructured.Unstructured {
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

// Write sends an Event. A failure is logged, and not returned: an Event repeats what the
// status of the object has.
func (e *Events) Write(ctx context.Context, event *unstructured.Unstructured) {
	resource := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	_, err := e.Client.Resource(resource).Namespace(event.GetNamespace()).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		reason, _, _ := unstructured.NestedString(event.Object, "reason")
		e.Logger.WarnContext(ctx, "event not recorded", slog.String("reason", reason), slog.Any("error", err))
	}
}
