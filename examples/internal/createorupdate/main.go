// Command createorupdate is the operator of examples/operator as it is written on
// controller-runtime without trueup: CreateOrUpdate for each child. It is there to be
// compared with, and to be moved over: examples/embed takes its place.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
)

const (
	manager   = "webapp-embed"
	managedBy = "app.kubernetes.io/managed-by"
	finalizer = "example.com/children"
)

func main() {
	// controller-runtime has added --kubeconfig to these flags.
	namespace := flag.String("namespace", manager, "namespace of the Lease")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := start(ctrl.SetupSignalHandler(), *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "createorupdate:", err)
		os.Exit(1)
	}
}

// start runs a Manager with the controller.
func start(ctx context.Context, namespace string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	if err := webapp.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: manager, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&webapp.WebApp{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{mgr.GetClient()})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

type reconciler struct{ client.Client }

// Reconcile does one pass for one WebApp.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	app := &webapp.WebApp{}
	if err := r.Get(ctx, request.NamespacedName, app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !app.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, app)
	}
	if controllerutil.AddFinalizer(app, finalizer) {
		if err := r.Update(ctx, app); err != nil {
			return ctrl.Result{}, err
		}
	}
	config := r.config(ctx, app)
	deployment, failed := r.deployment(ctx, app)
	err := errors.Join(config, failed, r.service(ctx, app))
	return ctrl.Result{}, errors.Join(err, r.report(ctx, app, deployment, err))
}

// finalize deletes the children, and then lets the WebApp go.
func (r *reconciler) finalize(ctx context.Context, app *webapp.WebApp) error {
	left := 0
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}} {
		if err := r.List(ctx, list, client.InNamespace(app.Namespace), client.MatchingLabels{managedBy: manager}); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			child, ok := item.(client.Object)
			if !ok || !metav1.IsControlledBy(child, app) {
				return nil
			}
			left++
			if child.GetDeletionTimestamp() != nil {
				return nil
			}
			return client.IgnoreNotFound(r.Delete(ctx, child, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		})
		if err != nil {
			return err
		}
	}
	if left > 0 || !controllerutil.RemoveFinalizer(app, finalizer) {
		return nil // the deletion of the last child starts a pass
	}
	return r.Update(ctx, app)
}

func (r *reconciler) deployment(ctx context.Context, app *webapp.WebApp) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	return d, r.put(ctx, app, d, func() {
		labels := map[string]string{"app": app.Name}
		d.Spec.Replicas, d.Spec.Selector = &app.Spec.Replicas, &metav1.LabelSelector{MatchLabels: labels}
		pod := &d.Spec.Template
		pod.Labels, pod.Annotations = labels, nil
		if len(pod.Spec.Containers) != 1 {
			pod.Spec.Containers = make([]corev1.Container, 1)
		}
		web := &pod.Spec.Containers[0]
		web.Name, web.Image, web.EnvFrom = "web", app.Spec.Image, nil
		web.Ports = []corev1.ContainerPort{{ContainerPort: app.Spec.Port, Protocol: corev1.ProtocolTCP}}
		if len(app.Spec.Config) == 0 {
			return
		}
		// Another configuration is another template, so that the pods are replaced.
		data, _ := json.Marshal(app.Spec.Config) // JSON can hold it
		pod.Annotations = map[string]string{"example.com/config": fmt.Sprintf("%x", sha256.Sum256(data))}
		name := corev1.LocalObjectReference{Name: app.Name + "-config"}
		web.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name}}}
	})
}

func (r *reconciler) service(ctx context.Context, app *webapp.WebApp) error {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	return r.put(ctx, app, s, func() {
		s.Spec.Selector = map[string]string{"app": app.Name}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(app.Spec.Port), Protocol: corev1.ProtocolTCP}}
	})
}

func (r *reconciler) config(ctx context.Context, app *webapp.WebApp) error {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name + "-config"}}
	if len(app.Spec.Config) > 0 {
		return r.put(ctx, app, c, func() { c.Data = app.Spec.Config })
	}
	if err := r.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil || !metav1.IsControlledBy(c, app) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Delete(ctx, c))
}

// put creates a child, or updates the fields that a function sets.
func (r *reconciler) put(ctx context.Context, app *webapp.WebApp, child client.Object, set func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		set()
		labels := child.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[managedBy] = manager
		child.SetLabels(labels)
		return controllerutil.SetControllerReference(app, child, r.Scheme())
	})
	return err
}

// report writes the status, if it is another.
func (r *reconciler) report(ctx context.Context, app *webapp.WebApp, d *appsv1.Deployment, failed error) error {
	before, _ := app.DeepCopyObject().(*webapp.WebApp)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Progressing", ObservedGeneration: app.Generation}
	rolledOut := d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == app.Spec.Replicas
	switch {
	case failed != nil:
		ready.Reason, ready.Message = "Failed", failed.Error()
	case rolledOut && d.Status.Replicas == app.Spec.Replicas && d.Status.AvailableReplicas == app.Spec.Replicas:
		ready.Status, ready.Reason = metav1.ConditionTrue, "Ready"
	}
	app.Status.ObservedGeneration = app.Generation
	meta.SetStatusCondition(&app.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before.Status, app.Status) {
		return nil
	}
	return r.Status().Patch(ctx, app, client.MergeFrom(before))
}
