package application

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// recorder writes an Event when the state of an Application changes, and at no other time.
type recorder struct {
	client   dynamic.Interface
	instance string
	logger   *slog.Logger
}

// record writes one Event. One that cannot be written is logged: it tells nothing that
// the status does not.
func (r *recorder) record(ctx context.Context, app *v1alpha1.Application, kind, reason, note string) {
	const most = 1024
	event := &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: app.Name + "-", Namespace: app.Namespace},
		EventTime:  metav1.NewMicroTime(time.Now()), ReportingController: "platform.internal/operator", ReportingInstance: r.instance,
		Action: "Reconcile", Reason: reason, Note: note[:min(len(note), most)], Type: kind,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "Application", Namespace: app.Namespace, Name: app.Name,
			UID: app.UID, ResourceVersion: app.ResourceVersion,
		},
	}
	content := toObject(event)
	_, err := r.client.Resource(eventsv1.SchemeGroupVersion.WithResource("events")).Namespace(app.Namespace).
		Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		r.logger.WarnContext(ctx, "event not recorded", slog.String("reason", reason), slog.Any("error", err))
	}
}
