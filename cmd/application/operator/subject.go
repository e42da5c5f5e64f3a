package operator

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// subject is the object that a pass is for: an Application, or a PreviewEnvironment with
// what it makes of the Application that it copies.
type subject struct {
	// app is the desired state. Of a PreviewEnvironment it has the UID and the status; its
	// namespace is the namespace of the children.
	app   *v1alpha1.Application
	names names.App
	mark  external.Mark
	// object is what Events are about, of this kind.
	object metav1.Object
	kind   string
	// version changes when something else is wanted.
	version string
	// home is the namespace that is made for a PreviewEnvironment. Its children have no
	// owner: an owner in another namespace is none.
	home []*unstructured.Unstructured
	// ownHost decides whether the host is its own. An error says why it is not. letGo
	// frees every host but one that was its own.
	ownHost func() error
	letGo   func(but string)
	// write writes the status, and refreshes the status of app.
	write func(context.Context, func(*v1alpha1.ApplicationStatus)) error
}

// application returns an Application as the subject of a pass.
func (w *operator) application(app *v1alpha1.Application) subject {
	return subject{
		app: app, names: names.Of(app), mark: w.markOf(app, app.Name), object: app, kind: "Application",
		version: fmt.Sprint(app.Generation, " ", app.Annotations[v1alpha1.AnnotationRotate]),
		ownHost: func() error { return w.claimHost(app) },
		letGo:   func(but string) { w.freeHosts(kube.KeyOf(app), but) },
		write: func(ctx context.Context, change func(*v1alpha1.ApplicationStatus)) error {
			return w.status.Update(ctx, app, func(app *v1alpha1.Application) { change(&app.Status) })
		},
	}
}

func (w *operator) markOf(object metav1.Object, name string) external.Mark {
	return external.Mark{Cluster: w.cluster, Namespace: object.GetNamespace(), Name: name, UID: string(object.GetUID())}
}
