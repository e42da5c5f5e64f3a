package kube

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// maxNote is how many bytes the API server takes as a note.
const maxNote = 1024

// Events writes Events about objects. All fields are required. It is safe for concurrent use.
type Events struct {
	// Client reaches the API server.
	Client dynamic.Interface
	// Controller is the reporting controller, such as example.com/operator, and Instance
	// its process.
	Controller, Instance string
	// Logger gets a line for each Event that is not recorded.
	Logger *slog.Logger
}

// New returns an Event about an object, of the type Normal or Warning. One about a
// cluster-scoped object is in the namespace default. A note is cut at 1024 bytes.
func (r *Events) New(about corev1.ObjectReference, kind, reason, note string) *eventsv1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: about.Name + "-", Namespace: namespace},
		EventTime:  metav1.NewMicroTime(time.Now()), ReportingController: r.Controller, ReportingInstance: r.Instance,
		Action: "Reconcile", Reason: reason, Note: strings.ToValidUTF8(note[:min(len(note), maxNote)], ""), Type: kind, Regarding: about,
	}
}

// Write sends an Event. A failure is logged, and not returned: an Event repeats what the
// status of the object has.
func (r *Events) Write(ctx context.Context, e *eventsv1.Event) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err == nil {
		_, err = r.Client.Resource(eventsv1.SchemeGroupVersion.WithResource("events")).Namespace(e.Namespace).
			Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	}
	if err != nil && ctx.Err() == nil {
		r.Logger.WarnContext(ctx, "event not recorded", slog.String("reason", e.Reason), slog.Any("error", err))
	}
}
