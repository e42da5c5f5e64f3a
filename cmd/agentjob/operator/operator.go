package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// workers is how many jobs are worked on at a time. One job has at most one pass.
const workers = 8

// atRest is the time between passes that nothing asks for. They send no request.
const atRest = 5 * time.Minute

// operator is the work of the process while it holds the Lease. It keeps nothing that a
// successor would miss: caches, and what saves requests.
//
// Children are written and watched by package apply. The Jobs of CronJobs and their pods,
// which the cluster makes, are watched here ([foreign]).
type operator struct {
	client  dynamic.Interface
	events  *kube.Events
	logger  *slog.Logger
	metrics *metrics
	limits  limits
	ignore  diff.Ignore
	now     func() time.Time
	live    *apply.Live
	applier *apply.Applier

	jobs       kube.Controller[*v1alpha1.AgentJob]
	runs       kube.Controller[*batchv1.Job]
	crons      kube.Controller[*batchv1.CronJob]
	pods       kube.Controller[*corev1.Pod]
	names      keyNames
	claims     claimSizes
	heap       heap
	withoutPod withoutPod
	finalize   kube.Finalizer
	status     kube.Status[*v1alpha1.AgentJob]
}

// foreign selects objects that are not children of a job: package apply watches the children.
const foreign = "!" + v1alpha1.LabelOwner

// limits are what the administrators of the cluster allow.
type limits struct {
	// everywhere lets jobs of all namespaces have rights in the whole cluster, not only
	// jobs of labelled namespaces.
	everywhere bool
	// keep is how long a finished Job stays.
	keep time.Duration
	// ceiling is the ClusterRole that holds what may be granted.
	ceiling string
}

var (
	runsResource  = batchv1.SchemeGroupVersion.WithResource("jobs")     //nolint:gochecknoglobals // constant
	cronsResource = batchv1.SchemeGroupVersion.WithResource("cronjobs") //nolint:gochecknoglobals // constant
	podsResource  = corev1.SchemeGroupVersion.WithResource("pods")      //nolint:gochecknoglobals // constant
)

// kinds returns the kinds of the children.
func kinds() map[schema.GroupVersionKind]meta.RESTScope {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	return map[schema.GroupVersionKind]meta.RESTScope{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):                    meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"):               meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"):        meta.RESTScopeNamespace,
		batchv1.SchemeGroupVersion.WithKind("Job"):                         meta.RESTScopeNamespace,
		batchv1.SchemeGroupVersion.WithKind("CronJob"):                     meta.RESTScopeNamespace,
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}: meta.RESTScopeNamespace,
		rbac.WithKind("Role"):                                              meta.RESTScopeNamespace,
		rbac.WithKind("RoleBinding"):                                       meta.RESTScopeNamespace,
		rbac.WithKind("ClusterRole"):                                       meta.RESTScopeRoot,
		rbac.WithKind("ClusterRoleBinding"):                                meta.RESTScopeRoot,
	}
}

func newOperator(config *rest.Config, o Operator, metrics *metrics) (*operator, error) {
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
		client: client, ignore: ignore, logger: o.Logger, metrics: metrics, now: time.Now,
		limits: limits{everywhere: o.AccessEverywhere, keep: o.keep(), ceiling: o.ceiling()},
		events: &kube.Events{Client: client, Controller: "thurbeen.eu/thurkube", Instance: o.Instance, Logger: o.Logger},
	}
	w.names.client, w.claims.client = client, client
	w.heap.release = debug.FreeOSMemory
	in := o.WatchNamespace
	w.jobs.Client, w.jobs.Metadata, w.jobs.Logger, w.jobs.Workers = client, metadataClient, o.Logger, workers
	w.jobs.Kind, w.jobs.IgnoreStatus = kube.Kind{Resource: resourceOf(jobsPlural), Namespace: in}, true
	w.jobs.Reconcile = w.reconcile
	w.jobs.OnPass = func(pass reconcile.KeyPass[types.NamespacedName]) {
		w.heap.passed()
		w.metrics.passed(pass)
	}
	w.jobs.Backoff = reconcile.Backoff{Min: 30 * time.Second, Max: atRest, Jitter: 0.2}
	w.jobs.References, w.jobs.ReferencesOf = w.referencesOf, dataOf
	for _, plural := range []string{
		runtimesPlural, authsPlural, rolesPlural, skillsPlural, serversPlural, repositoriesPlural, accessesPlural,
	} {
		w.jobs.Referenced = append(w.jobs.Referenced, kube.Kind{Resource: resourceOf(plural), Namespace: in, Whole: true})
	}
	w.jobs.Referenced = append(w.jobs.Referenced,
		kube.Kind{Resource: secretsResource, Namespace: in}, kube.Kind{Resource: configsResource, Namespace: in, LabelSelector: foreign},
		kube.Kind{Resource: namespacesResource},
		kube.Kind{Resource: ceilingRole("").Resource, FieldSelector: "metadata.name=" + w.limits.ceiling, Whole: true})
	resource := resourceOf(jobsPlural)
	w.finalize = kube.Finalizer{Client: client, Resource: resource, Name: v1alpha1.Finalizer, Poll: 2 * time.Second, OnWrite: w.jobs.Wrote}
	w.status = kube.Status[*v1alpha1.AgentJob]{
		Client: client, Resource: resource, OnWrite: w.jobs.Wrote,
		Conditions: []string{conditionReady, conditionResolved, conditionAccess, conditionFinished},
	}
	w.watchRuns(in, o.Logger)

	mapper := meta.NewDefaultRESTMapper(nil)
	wake := func(child apply.Observed) { w.jobs.AddUID(types.UID(child.Part)) }
	w.live = &apply.Live{Client: metadataClient, Mapper: mapper, Owner: owner(), OnChange: wake, OnDrift: wake, Logger: o.Logger}
	w.live.OnSynced = func(schema.GroupKind) { w.jobs.Add(w.jobs.Keys("")...) }
	if in != "" {
		w.live.Namespaces = []string{in}
	}
	for kind, scope := range kinds() {
		mapper.Add(kind, scope)
		w.live.Kinds = append(w.live.Kinds, kind)
	}
	w.applier = &apply.Applier{Live: w.live, Objects: client, Overrides: true}
	return w, nil
}

// watchRuns sees to the status of runs: of Jobs, CronJobs and pods, of which package
// apply keeps the metadata alone. What is made for a job carries its UID.
func (w *operator) watchRuns(namespace string, logger *slog.Logger) {
	const ours = labelManagedBy + "=" + manager + "," + v1alpha1.LabelOwner
	wakeOwner := func(job types.UID) { w.jobs.AddUID(job) }
	w.runs.Client, w.runs.Logger, w.runs.Kind = w.client, logger, kube.Kind{
		Resource:      runsResource,
		Namespace:     namespace,
		LabelSelector: ours,
		Drop:          "spec.template",
	}
	w.runs.References = func(job *batchv1.Job) []kube.Reference { return []kube.Reference{ownedBy(job)} }
	w.runs.Reconcile = waking[*batchv1.Job](wakeOwner, nil)
	w.crons.Client, w.crons.Logger, w.crons.Kind = w.client, logger, kube.Kind{
		Resource:      cronsResource,
		Namespace:     namespace,
		LabelSelector: ours,
		Drop:          "spec.jobTemplate",
	}
	w.crons.Reconcile = waking(wakeOwner, schedule)
	w.pods.Client, w.pods.Logger, w.pods.Kind = w.client, logger, kube.Kind{
		Resource:      podsResource,
		Namespace:     namespace,
		LabelSelector: ours,
		Drop:          "spec",
	}
	w.pods.References = func(pod *corev1.Pod) []kube.Reference { return []kube.Reference{runOf(pod)} }
	w.pods.Reconcile = waking[*corev1.Pod](wakeOwner, nil)
}

// referencesOf names what a job refers to, and the ceiling of its rights.
func (w *operator) referencesOf(job *v1alpha1.AgentJob) []kube.Reference {
	found := referencesOf(job)
	if job.Spec.ClusterAccessRef != "" {
		found = append(found, ceilingRole(w.limits.ceiling))
	}
	return found
}

// waking calls wake with the UID of the job that an object was made for, also when the
// object is deleted. If read is set, it returns the fields that a pass reads of the object,
// and a change of any other field wakes no job.
func waking[T interface {
	*E
	metav1.Object
}, E any](wake func(job types.UID), read func(T) any) func(context.Context, types.NamespacedName, T) (reconcile.Result, error) {
	type state struct {
		owner types.UID
		read  diff.Sum
	}
	var states sync.Map // from the key of an object
	return func(_ context.Context, key types.NamespacedName, o T) (reconcile.Result, error) {
		if o == nil {
			if was, ok := states.LoadAndDelete(key); ok {
				wake(was.(state).owner) // it holds nothing else
			}
			return reconcile.Result{}, nil
		}
		now := state{owner: types.UID(o.GetLabels()[v1alpha1.LabelOwner])}
		if read != nil {
			var err error
			if now.read, err = diff.Hash(read(o)); err != nil {
				return reconcile.Result{}, fmt.Errorf("read %s: %w", key, err)
			}
		}
		if was, ok := states.Swap(key, now); !ok || read == nil || was != now {
			wake(now.owner)
		}
		return reconcile.Result{}, nil
	}
}

// schedule returns what a pass reads of a CronJob: the answer to our own write of its
// template has nothing new in it.
func schedule(cron *batchv1.CronJob) any {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{
			UID: cron.UID, Labels: cron.Labels, CreationTimestamp: cron.CreationTimestamp, DeletionTimestamp: cron.DeletionTimestamp,
		},
		Spec: batchv1.CronJobSpec{Suspend: cron.Spec.Suspend}, Status: cron.Status,
	}
}

// ownedBy is the AgentJob that an object was made for.
func ownedBy(o metav1.Object) kube.Reference {
	return kube.Reference{Resource: resourceOf(jobsPlural), Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.LabelJob]}
}

// runOf is the Job of a pod.
func runOf(pod *corev1.Pod) kube.Reference {
	return kube.Reference{Resource: runsResource, Namespace: pod.Namespace, Name: pod.Labels[batchv1.JobNameLabel]}
}

// dataOf returns the Secrets and ConfigMaps that an object names which a job refers to.
func dataOf(from kube.Reference, o *unstructured.Unstructured) (found []kube.Reference) {
	add := func(keys ...dataKey) {
		for _, key := range keys {
			if key.name != "" {
				found = append(found, key.in(from.Namespace))
			}
		}
	}
	switch from.Resource.Resource {
	case authsPlural:
		var auth v1alpha1.AgentAuth
		if into(o.Object, &auth) == nil {
			add(secretKey(auth.Spec.SecretRef))
		}
	case repositoriesPlural:
		var repository v1alpha1.Repository
		if into(o.Object, &repository) == nil && repository.Spec.TokenSecretRef != nil {
			add(secretKey(*repository.Spec.TokenSecretRef))
		}
	case serversPlural:
		var server v1alpha1.McpServer
		if into(o.Object, &server) == nil {
			if server.Spec.HeadersSecretRef != nil {
				add(secretKey(*server.Spec.HeadersSecretRef))
			}
			add(envKeys(server.Spec.Env, nil)...)
		}
	}
	return found
}

// Start works until ctx ends.
func (w *operator) Start(ctx context.Context) error {
	group := &reconcile.Group{Members: []reconcile.Member{
		{Name: "live view", Starter: w.live},
		{Name: "runs", Starter: &w.runs},
		{Name: "schedules", Starter: &w.crons},
		{Name: "pods", Starter: &w.pods},
		{Name: "heap", Starter: &w.heap},
		{Name: "events", Starter: w.events},
		{Name: "jobs", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			// A run is started only when all that was started before is seen.
			if err := w.settled(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			return w.jobs.Start(ctx)
		})},
	}}
	return group.Start(ctx)
}

// settled waits until the views of all children are complete.
func (w *operator) settled(ctx context.Context) error {
	if err := w.live.WaitSynced(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if w.viewed() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (w *operator) viewed() bool {
	for _, synced := range []func() (bool, error){w.runs.Synced, w.crons.Synced, w.pods.Synced} {
		if ok, _ := synced(); !ok {
			return false
		}
	}
	return true
}

// Synced reports whether all that passes read has been seen.
func (w *operator) Synced() (bool, error) { return w.jobs.Synced() }

// ignored returns the fields that are only set at creation: immutable ones, and the size of
// a volume, which users may grow.
func ignored() (diff.Ignore, error) {
	return diff.NewIgnore(
		diff.Rule{Kind: "PersistentVolumeClaim", Paths: []string{".spec"}},
		diff.Rule{Kind: "Job.batch", Paths: []string{".spec"}},
	)
}
