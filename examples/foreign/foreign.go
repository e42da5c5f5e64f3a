// Package foreign holds a small reconciler made with controller-runtime, for its
// tests: they show how a reconciler is put to the test whatever library it is built
// on, with package applytest on a real API server, and with package simtest in a
// simulated world.
package foreign

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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
	// Adopts takes over objects of the names that others have made.
	Adopts bool
	// Recursive takes the settings that it makes for sites, which have settings.
	Recursive bool
	// StopsEarly makes no Deployment while the settings cannot be made.
	StopsEarly bool
}

// SetupWithManager adds the reconciler to a manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	site := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.(*corev1.ConfigMap).Data["image"]
		return ok || r.Recursive
	})
	return ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}, builder.WithPredicates(site)).
		Owns(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).Complete(r)
}

// Reconcile makes both objects match the ConfigMap.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var site corev1.ConfigMap
	if err := r.Client.Get(ctx, request.NamespacedName, &site); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name + "-settings"}}
	_, failed := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		if err := r.own(&site, settings); err != nil {
			return err
		}
		settings.Data = map[string]string{"greeting": site.Data["greeting"]}
		return nil
	})
	if failed != nil && r.StopsEarly {
		return reconcile.Result{}, failed
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, web, func() error {
		if err := r.own(&site, web); err != nil {
			return err
		}
		r.state(web, site.Data["image"])
		return nil
	})
	return reconcile.Result{}, errors.Join(failed, err)
}

// own makes an object one of the site.
func (r *Reconciler) own(site *corev1.ConfigMap, object client.Object) error {
	if !r.Adopts && object.GetUID() != "" && !metav1.IsControlledBy(object, site) {
		return fmt.Errorf("%T %s is not the site's", object, object.GetName())
	}
	return controllerutil.SetControllerReference(site, object, r.Client.Scheme())
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
