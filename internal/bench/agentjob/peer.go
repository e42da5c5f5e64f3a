package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	peerName       = "peer"
	workers        = 8
	hashAnnotation = "example.com/hash"
	finalizer      = "example.com/finalizer"
)

// peer is the operator on controller-runtime.
type peer struct {
	client.Client

	scheme *runtime.Scheme
}

// runPeer works in a namespace until ctx ends. Its /readyz answers 200 once its caches are filled.
func runPeer(ctx context.Context, config *rest.Config, namespace, health string) error {
	config.QPS = -1
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return err
	}
	addKinds(known)
	ours := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": peerName})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: known, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: health,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {
					Label: ours,
				},
				&corev1.ServiceAccount{}: {Label: ours},
				&batchv1.CronJob{}:       {Label: ours},
				&batchv1.Job{}:           {Label: ours},
			},
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("not filled yet")
		}
		return nil
	}); err != nil {
		return err
	}
	p := &peer{mgr.GetClient(), known}
	build := ctrl.NewControllerManagedBy(mgr).For(&agentJob{}).WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Owns(&corev1.ConfigMap{}).Owns(&corev1.ServiceAccount{}).Owns(&batchv1.CronJob{}).Owns(&batchv1.Job{})
	for field, watched := range map[string]struct {
		kind client.Object
		name func(*agentJob) string
	}{
		"runtime": {&agentRuntime{}, func(j *agentJob) string { return j.Spec.RuntimeRef }},
		"auth":    {&agentAuth{}, func(j *agentJob) string { return j.Spec.AuthRef }},
		"role":    {&agentRole{}, func(j *agentJob) string { return j.Spec.RoleRef }},
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &agentJob{}, field, func(o client.Object) []string {
			return []string{watched.name(o.(*agentJob))} // the index is of that kind
		}); err != nil {
			return err
		}
		build = build.Watches(watched.kind, handler.EnqueueRequestsFromMapFunc(p.users(field)))
	}
	build = build.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(p.usersOfSecret))
	if err := build.Complete(p); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// users maps an object to the jobs that name it.
func (p *peer) users(field string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var jobs agentJobs
		if err := p.List(ctx, &jobs, client.InNamespace(o.GetNamespace()), client.MatchingFields{field: o.GetName()}); err != nil {
			return nil
		}
		requests := make([]reconcile.Request, len(jobs.Items))
		for i := range jobs.Items {
			requests[i].NamespacedName = client.ObjectKeyFromObject(&jobs.Items[i])
		}
		return requests
	}
}

func (p *peer) usersOfSecret(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var auths agentAuths
	if err := p.List(ctx, &auths, client.InNamespace(o.GetNamespace())); err != nil {
		return nil
	}
	for i := range auths.Items {
		if auths.Items[i].Spec.SecretRef.Name == o.GetName() {
			requests = append(requests, p.users("auth")(ctx, &auths.Items[i])...)
		}
	}
	return requests
}

// Reconcile does one pass for one job.
func (p *peer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job := &agentJob{}
	if err := p.Get(ctx, request.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if job.DeletionTimestamp != nil {
		if controllerutil.RemoveFinalizer(job, finalizer) {
			return ctrl.Result{}, p.Update(ctx, job)
		}
		return ctrl.Result{}, nil
	}
	before := job.DeepCopyObject().(*agentJob) // it is of that type
	if controllerutil.AddFinalizer(job, finalizer) {
		if err := p.Patch(ctx, job, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		before = job.DeepCopyObject().(*agentJob) // as above
	}
	err := p.converge(ctx, job)
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", ObservedGeneration: job.Generation}
	if err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "ResolveFailed", err.Error()
		job.Status.Phase = "Pending"
	}
	meta.SetStatusCondition(&job.Status.Conditions, condition)
	job.Status.ObservedGeneration = job.Generation
	if !equality.Semantic.DeepEqual(before.Status, job.Status) {
		if failed := p.Status().Patch(ctx, job, client.MergeFrom(before)); failed != nil {
			return ctrl.Result{}, failed
		}
	}
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // what is missing starts a pass when it comes
	}
	return ctrl.Result{}, err
}

func (p *peer) converge(ctx context.Context, job *agentJob) error {
	var uses agentRuntime
	var auth agentAuth
	var role agentRole
	var secret corev1.Secret
	at := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: job.Namespace, Name: name}
	}
	if err := p.Get(ctx, at(job.Spec.RuntimeRef), &uses); err != nil {
		return err
	}
	if err := p.Get(ctx, at(job.Spec.AuthRef), &auth); err != nil {
		return err
	}
	if err := p.Get(ctx, at(job.Spec.RoleRef), &role); err != nil {
		return err
	}
	if err := p.Get(ctx, at(auth.Spec.SecretRef.Name), &secret); err != nil {
		return err
	}
	if _, ok := secret.Data[auth.Spec.SecretRef.Key]; !ok {
		return fmt.Errorf("secret %s has no key %s", secret.Name, auth.Spec.SecretRef.Key)
	}
	config, err := render(job, &role)
	if err != nil {
		return err
	}
	configHash, templateHash := digest(config), digest(uses.Spec, auth.Spec, job.Spec.TimeoutSeconds)
	if err := p.children(ctx, job, &uses, &auth, config, configHash, templateHash); err != nil {
		return err
	}
	job.Status.ConfigHash, job.Status.TemplateHash, job.Status.Phase = configHash, templateHash, "Scheduled"
	job.Status.Owned = []ownedObject{
		{"ConfigMap", job.Name + "-config-" + configHash},
		{"CronJob", job.Name},
		{"ServiceAccount", job.Name + "-runner"},
	}
	return nil
}

func (p *peer) children(
	ctx context.Context,
	job *agentJob,
	uses *agentRuntime,
	auth *agentAuth,
	config, configHash, templateHash string,
) error {
	data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-config-" + configHash}}
	_, err := controllerutil.CreateOrUpdate(ctx, p, data, func() error {
		data.Labels, data.Immutable, data.Data = labelsOf(job), new(true), map[string]string{"agent.json": config}
		return controllerutil.SetControllerReference(job, data, p.scheme)
	})
	if err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-runner"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, p, account, func() error {
		account.Labels, account.AutomountServiceAccountToken = labelsOf(job), new(false)
		return controllerutil.SetControllerReference(job, account, p.scheme)
	}); err != nil {
		return err
	}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, p, cron, func() error {
		spec := cronSpec(job, uses, auth, configHash)
		if hash := digest(spec); cron.Annotations[hashAnnotation] != hash {
			cron.Spec = spec
			metav1.SetMetaDataAnnotation(&cron.ObjectMeta, hashAnnotation, hash)
			metav1.SetMetaDataAnnotation(&cron.ObjectMeta, groupVersion().Group+"/run-hash", digest(configHash, templateHash))
		}
		cron.Labels = labelsOf(job)
		return controllerutil.SetControllerReference(job, cron, p.scheme)
	}); err != nil {
		return err
	}
	var old corev1.ConfigMapList
	if err := p.List(
		ctx,
		&old,
		client.InNamespace(job.Namespace),
		client.MatchingLabels{groupVersion().Group + "/owner-uid": string(job.UID)},
	); err != nil {
		return err
	}
	for i := range old.Items {
		if old.Items[i].Name != data.Name {
			if err := p.Delete(ctx, &old.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

func render(job *agentJob, role *agentRole) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(struct {
		Prompt       string   `json:"prompt"`
		Instructions string   `json:"instructions,omitempty"`
		Model        string   `json:"model,omitempty"`
		AllowedTools []string `json:"allowedTools"`
		McpServers   []string `json:"mcpServers"`
		Repositories []string `json:"repositories"`
	}{job.Spec.Prompt, job.Spec.Instructions, job.Spec.Model, role.Spec.AllowedTools, []string{}, []string{}})
	return text.String(), err
}

func digest(of ...any) string {
	text, _ := json.Marshal(of) // types of Kubernetes are JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
