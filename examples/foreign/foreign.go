// Package foreign holds a small reconciler made with controller-runtime, for its
// test: that shows how package applytest puts any reconciler to the test, on a
// real API server, whatever library it is built on.
package foreign

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler runs the image that a ConfigMap names: it keeps a Deployment of the
// ConfigMap's name, and a ConfigMap with the settings beside it.
type Reconciler struct {
	Client client.Client
	// Naive states the whole spec of the Deployment. The server's defaults are not
	// in there, so it differs from the live one for ever, and is written in every
	// pass.
	Naive bool
}

// Reconcile makes both objects as the ConfigMap says.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var site corev1.ConfigMap
	if err := r.Client.Get(ctx, request.NamespacedName, &site); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name + "-settings"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		settings.Data = map[string]string{"greeting": site.Data["greeting"]}
		return controllerutil.SetControllerReference(&site, settings, r.Client.Scheme())
	}); err != nil {
		return reconcile.Result{}, err
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, web, func() error {
		r.state(web, site.Data["image"])
		return controllerutil.SetControllerReference(&site, web, r.Client.Scheme())
	})
	return reconcile.Result{}, err
}

func (r *Reconciler) state(web *appsv1.Deployment, image string) {
	if r.Naive {
		web.Spec = appsv1.DeploymentSpec{}
	}
	labels := map[string]string{"app": web.Name}
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	web.Spec.Template.Labels = labels
	if len(web.Spec.Template.Spec.Containers) == 0 {
		web.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	web.Spec.Template.Spec.Containers[0].Image = image
}
