package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/auth"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/database"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/storage"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

const (
	// workers is how many applications are worked on at a time, perService how many of
	// these may use one service: a service that hangs leaves workers for others.
	workers    = 24
	perService = 6
)

// operator is the work of the process while it holds the Lease.
type operator struct {
	client   dynamic.Interface
	settings Settings
	database databases    // nil: none is set
	auth     *auth.Server // nil: none is set
	storage  *storage.Server
	gates    gates
	cluster  string // identifies the cluster in marks
	events   *kube.Events
	metrics  *metrics
	logger   *slog.Logger
	ignore   diff.Ignore
	now      func() time.Time
	checks   checks
	live     *apply.Live
	applier  *apply.Applier

	// hosts are the hosts of Applications, previewHosts the hosts of previews.
	hosts, previewHosts hosts

	apps     kube.Controller[*v1alpha1.Application]
	finalize kube.Finalizer
	status   kube.Status[*v1alpha1.Application]

	previews        kube.Controller[*v1alpha1.PreviewEnvironment]
	finalizePreview kube.Finalizer
	previewStatus   kube.Status[*v1alpha1.PreviewEnvironment]
	sweep           reconcile.Loop

	// pods wake the passes of what they run: why they do not is in their status alone.
	pods kube.Controller[*corev1.Pod]
}

// gates are the gates of the services.
type gates struct{ database, storage, auth outside.Gate }

// The resources that are read and written by name.
var (
	appsResource       = v1alpha1.GroupVersion().WithResource("applications")        //nolint:gochecknoglobals // constant
	previewsResource   = v1alpha1.GroupVersion().WithResource("previewenvironments") //nolint:gochecknoglobals // constant
	secretsResource    = corev1.SchemeGroupVersion.WithResource("secrets")           //nolint:gochecknoglobals // constant
	namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces")        //nolint:gochecknoglobals // constant
	podsResource       = corev1.SchemeGroupVersion.WithResource("pods")              //nolint:gochecknoglobals // constant
	jobsResource       = batchv1.SchemeGroupVersion.WithResource("jobs")             //nolint:gochecknoglobals // constant
)

// kinds returns the kinds of the children.
func kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"),
		corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
		corev1.SchemeGroupVersion.WithKind("LimitRange"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		corev1.SchemeGroupVersion.WithKind("Secret"),
		corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		corev1.SchemeGroupVersion.WithKind("Service"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"),
		batchv1.SchemeGroupVersion.WithKind("Job"),
		autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
		networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
	}
}

func newOperator(ctx context.Context, config *rest.Config, o Operator, m *metrics) (*operator, error) {
	client, failed := kubewatch.Dynamic(config, nil)
	metadataClient, err := clientmetadata.NewForConfig(config)
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	ignore, err := ignored()
	if err != nil {
		return nil, err
	}
	w := &operator{
		client: client, settings: o.Settings, ignore: ignore, logger: o.Logger, now: o.now, metrics: m,
		gates:  gates{outside.NewGate(perService), outside.NewGate(perService), outside.NewGate(perService)},
		events: &kube.Events{Client: client, Controller: "platform.internal/operator", Instance: o.Instance, Logger: o.Logger},
	}
	if w.now == nil {
		w.now = time.Now
	}
	w.checks.parts.Interval, w.checks.parts.Now = cmp.Or(o.CheckInterval, 5*time.Minute), w.now
	if o.Settings.DatabaseURL != "" {
		server, err := database.Open(ctx, database.Options{
			URL: o.Settings.DatabaseURL, Connections: perService, Tracer: o.tap.sql, Logger: o.Logger,
			RoleConnections: o.Settings.DatabaseConnections, RoleStatementTimeout: o.Settings.DatabaseTimeout,
		})
		if err != nil {
			return nil, err
		}
		if w.database = server; o.tap.database != nil {
			w.database = o.tap.database(server)
		}
	}
	if o.Settings.KeycloakURL != "" {
		if w.auth, err = auth.Open(
			auth.Options{
				URL:       o.Settings.KeycloakURL,
				User:      o.Settings.KeycloakUser,
				Password:  o.Settings.KeycloakPassword,
				Transport: o.tap.keycloak,
			},
		); err != nil {
			w.close()
			return nil, err
		}
	}
	// Without credentials of its own, the SDK of AWS finds them.
	if w.storage, err = storage.Open(
		ctx,
		storage.Options{Endpoint: o.Settings.S3Endpoint, Region: o.Settings.S3Region, Credentials: o.S3Credentials, HTTP: o.tap.s3},
	); err != nil {
		w.close()
		return nil, err
	}
	backoff := reconcile.Backoff{Min: 30 * time.Second, Max: 5 * time.Minute, Jitter: 0.2}
	w.apps.Client, w.apps.Metadata, w.apps.Logger, w.apps.Workers, w.apps.Backoff = client, metadataClient, o.Logger, workers, backoff
	w.apps.Kind, w.apps.IgnoreStatus = kube.Kind{Resource: appsResource}, true
	w.apps.References = func(app *v1alpha1.Application) []kube.Reference {
		return []kube.Reference{hostReference(names.Of(app).HostName(w.settings.BaseDomain))}
	}
	w.apps.Reconcile = w.reconcile
	w.finalize = kube.Finalizer{Client: client, Resource: appsResource, Name: v1alpha1.Finalizer, Poll: 2 * time.Second, OnWrite: w.apps.Wrote}
	w.status = kube.Status[*v1alpha1.Application]{
		Client:     client,
		Resource:   appsResource,
		OnWrite:    w.apps.Wrote,
		Conditions: v1alpha1.ConditionTypes(),
	}
	w.previews.Client, w.previews.Metadata, w.previews.Logger = client, metadataClient, o.Logger
	w.previews.Workers, w.previews.Backoff = workers, backoff
	w.previews.Kind, w.previews.IgnoreStatus = kube.Kind{Resource: previewsResource}, true
	w.previews.Referenced = []kube.Kind{{Resource: appsResource, Whole: true, Drop: "status"}}
	w.previews.References = func(preview *v1alpha1.PreviewEnvironment) []kube.Reference {
		return []kube.Reference{parentOf(preview), hostReference(w.previewHost(preview))}
	}
	w.previews.Reconcile = w.reconcilePreview
	w.finalizePreview = kube.Finalizer{
		Client:   client,
		Resource: previewsResource,
		Name:     v1alpha1.Finalizer,
		Poll:     2 * time.Second,
		OnWrite:  w.previews.Wrote,
	}
	w.previewStatus = kube.Status[*v1alpha1.PreviewEnvironment]{
		Client:     client,
		Resource:   previewsResource,
		OnWrite:    w.previews.Wrote,
		Conditions: v1alpha1.ConditionTypes(),
	}
	w.sweep.Name, w.sweep.Interval, w.sweep.Logger = "expired previews", sweepAgain, o.Logger
	w.sweep.Reconciler = reconcile.Func(w.wakeExpired)

	mapper := meta.NewDefaultRESTMapper(nil)
	wakeUID := func(uid types.UID) {
		w.apps.AddUID(uid)
		w.previews.AddUID(uid)
	}
	wake := func(child apply.Observed) { wakeUID(types.UID(child.Part)) }
	w.pods.Client, w.pods.Logger = client, o.Logger
	w.pods.Kind = kube.Kind{Resource: podsResource, LabelSelector: labelManagedBy + "=" + manager, Drop: "spec,status"}
	w.pods.Reconcile = func(_ context.Context, _ types.NamespacedName, pod *corev1.Pod) (reconcile.Result, error) {
		if pod != nil {
			wakeUID(types.UID(pod.Labels[v1alpha1.LabelOwner]))
		}
		return reconcile.Result{}, nil
	}
	w.live = &apply.Live{
		Client:   metadataClient,
		Mapper:   mapper,
		Owner:    owner(),
		OnChange: wake,
		OnSynced: func(schema.GroupKind) {
			w.apps.Add(w.apps.Keys("")...)
			w.previews.Add(w.previews.Keys("")...)
		},
		Kinds:  kinds(),
		Logger: o.Logger,
		OnDrift: func(child apply.Observed) {
			if child.ID.Kind == "Secret" {
				w.checks.forget(types.UID(child.Part)) // the role must have the password that the Secret has now
			}
			wake(child)
		},
	}
	for _, kind := range kinds() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Namespace" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	w.applier = &apply.Applier{Live: w.live, Objects: client, Overrides: true}
	return w, nil
}

// Start works until ctx ends.
func (w *operator) Start(ctx context.Context) error {
	defer w.close()
	group := &reconcile.Group{Members: []reconcile.Member{
		{Name: "live view", Starter: w.live},
		{Name: "events", Starter: w.events},
		{Name: "passes", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			if err := w.identify(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			if err := w.live.WaitSynced(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			passes := &reconcile.Group{Members: []reconcile.Member{
				{Name: "applications", Starter: &w.apps},
				{Name: "previews", Starter: &w.previews},
				{Name: "pods", Starter: &w.pods},
				{Name: "expiry", Starter: &w.sweep},
			}}
			return passes.Start(ctx)
		})},
	}}
	return group.Start(ctx)
}

// close ends what newOperator has opened.
func (w *operator) close() {
	if w.database != nil {
		w.database.Close()
	}
}

// identify reads what marks name the cluster by: the UID of the namespace kube-system. It
// tries until it can, or ctx ends.
func (w *operator) identify(ctx context.Context) error {
	return reconcile.Backoff{Max: 10 * time.Second, Jitter: 0.2}.Retry(ctx, func(ctx context.Context) error {
		o, err := w.client.Resource(namespacesResource).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			w.logger.WarnContext(ctx, "cluster UID not read", slog.Any("error", err))
			return err
		}
		w.cluster = string(o.GetUID())
		return nil
	})
}

// Synced reports whether all that passes read has been seen.
func (w *operator) Synced() (bool, error) {
	apps, appsErr := w.apps.Synced()
	previews, previewsErr := w.previews.Synced()
	return apps && previews, errors.Join(appsErr, previewsErr)
}

// into reads an object into a typed one.
func into(object map[string]any, target any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, target)
}
