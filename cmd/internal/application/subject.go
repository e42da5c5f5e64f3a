package application

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/names"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// subject is the object that a pass is for: an Application, or a PreviewEnvironment with
// what it makes of the Application that it copies.
type subject struct {
	// app is what is wanted. Of a PreviewEnvironment it has the UID and the status; its
	// namespace is that of the children.
	app   *v1alpha1.Application
	names names.App
	mark  outside.Mark
	// object is what Events are about.
	object corev1.ObjectReference
	// version changes when something else is wanted.
	version string
	// home is the namespace that is made for a PreviewEnvironment. Its children have no
	// owner: an owner in another namespace is none.
	home []*unstructured.Unstructured
	// write writes the status, and refreshes that of app.
	write func(context.Context, func(*v1alpha1.ApplicationStatus)) error
}

// application returns an Application as the subject of a pass.
func (w *operator) application(app *v1alpha1.Application) subject {
	return subject{
		app: app, names: names.Of(app), mark: w.markOf(app, app.Name), object: reference("Application", app),
		version: fmt.Sprint(app.Generation, " ", app.Annotations[v1alpha1.AnnotationRotate]),
		write: func(ctx context.Context, change func(*v1alpha1.ApplicationStatus)) error {
			return w.status.Update(ctx, app, func(app *v1alpha1.Application) { change(&app.Status) })
		},
	}
}

func (w *operator) markOf(object metav1.Object, name string) outside.Mark {
	return outside.Mark{Cluster: w.cluster, Namespace: object.GetNamespace(), Name: name, UID: string(object.GetUID())}
}

// reference names an object in an Event.
func reference(kind string, object metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
}
