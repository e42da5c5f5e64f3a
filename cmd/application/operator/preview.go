package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/application/names"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// sweepAgain is the longest time between two looks for expired previews.
const sweepAgain = 5 * time.Minute

// reconcilePreview does one pass for one PreviewEnvironment.
func (w *operator) reconcilePreview(
	ctx context.Context,
	key types.NamespacedName,
	preview *v1alpha1.PreviewEnvironment,
) (reconcile.Result, error) {
	w.metrics.previews.Set(float64(len(w.previews.Keys(""))))
	if preview == nil {
		w.freePreviewHosts(key, "")
		return reconcile.Result{}, nil // everything went before the finalizer
	}
	if preview.DeletionTimestamp != nil {
		w.checks.forget(preview.UID)
	}
	parent, err := w.parent(preview)
	if err != nil {
		return reconcile.Result{}, err
	}
	alive, result, err := w.finalizePreview.Finalize(ctx, preview, func(ctx context.Context) (bool, error) {
		return w.newPass(w.copyOf(preview, parent)).teardown(ctx)
	})
	if !alive || err != nil {
		return result, err
	}
	if left := expiry(preview).Sub(w.now()); left <= 0 {
		return reconcile.Result{}, w.expire(ctx, preview)
	}
	w.sweep.Trigger() // it knows when the next one expires
	p := w.newPass(w.copyOf(preview, parent))
	if parent == nil {
		return reconcile.Result{}, p.orphaned(ctx) // the parent's creation wakes it
	}
	return p.run(ctx)
}

// expiry is when a preview ends, whatever happened to it since its creation.
func expiry(preview *v1alpha1.PreviewEnvironment) time.Time {
	return preview.CreationTimestamp.Add(duration(preview.Spec.TTL))
}

// duration reads a TTL. One that the API server would not take is the longest.
func duration(ttl v1alpha1.TTL) time.Duration {
	const day = 24 * time.Hour
	if ttl != "" {
		n, err := strconv.ParseUint(string(ttl[:len(ttl)-1]), 10, 16)
		unit, known := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': day}[ttl[len(ttl)-1]]
		if err == nil && known {
			return time.Duration(n) * unit //nolint:gosec // at most 16 bits
		}
	}
	return 30 * day
}

// expire deletes a preview. Its finalizer keeps it until nothing is left.
func (w *operator) expire(ctx context.Context, preview *v1alpha1.PreviewEnvironment) error {
	err := w.client.Resource(previewsResource).
		Namespace(preview.Namespace).
		Delete(ctx, preview.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(preview.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is deleted, or another has its name
	}
	if err != nil {
		return fmt.Errorf("delete the expired preview: %w", err)
	}
	w.events.Record(v1alpha1.GroupVersion().WithKind("PreviewEnvironment"), preview, kube.EventNormal,
		"Expired", "its ttl of "+string(preview.Spec.TTL)+" is over: it is removed")
	return nil
}

// wakeExpired starts passes for all previews that have expired, and comes back when the
// next one does.
func (w *operator) wakeExpired(context.Context) (reconcile.Result, error) {
	previews, err := w.previews.List("")
	if errors.Is(err, kube.ErrNotSynced) {
		return reconcile.Result{}, nil // the first passes trigger it
	}
	next := sweepAgain
	for _, preview := range previews {
		if left := expiry(preview).Sub(w.now()); left <= 0 {
			w.previews.Add(kube.KeyOf(preview))
		} else {
			next = min(next, left)
		}
	}
	return reconcile.Result{RequeueAfter: next}, err
}

// parentOf names the Application that a preview copies.
func parentOf(preview *v1alpha1.PreviewEnvironment) kube.Reference {
	return kube.Reference{Resource: appsResource, Namespace: preview.Namespace, Name: string(preview.Spec.ApplicationRef)}
}

// parent returns the Application that a preview copies, nil if there is none that lasts.
func (w *operator) parent(preview *v1alpha1.PreviewEnvironment) (*v1alpha1.Application, error) {
	found, err := w.previews.Lookup(parentOf(preview))
	if errors.Is(err, kube.ErrAbsent) {
		return nil, nil //nolint:nilnil // none
	}
	if err != nil {
		return nil, err
	}
	if found.GetDeletionTimestamp() != nil {
		return nil, nil //nolint:nilnil // none that lasts
	}
	app := &v1alpha1.Application{}
	return app, into(found.Object, app)
}

// copyOf returns a preview as the subject of a pass. Without a parent it is what its
// removal needs: the names.
func (w *operator) copyOf(preview *v1alpha1.PreviewEnvironment, parent *v1alpha1.Application) subject {
	app := &v1alpha1.Application{}
	app.Name, app.Namespace = string(preview.Spec.ApplicationRef), preview.Namespace
	version := ""
	if parent != nil {
		app.Spec = parent.Spec
		version = fmt.Sprint(parent.UID, " ", parent.Generation)
	}
	n := names.OfPreview(app, preview.Spec.PullRequest)
	app.Namespace, app.UID, app.Annotations, app.Status = n.Namespace(), preview.UID, preview.Annotations, preview.Status.ApplicationStatus
	spec := &app.Spec
	spec.Environment, spec.Branch, spec.Domain = v1alpha1.Preview, preview.Spec.Branch, ""
	spec.Scaling = v1alpha1.Scaling{Min: 1, Max: 2, TargetCPU: 80}
	if preview.Spec.ImageRef != "" {
		spec.ImageRef = preview.Spec.ImageRef
	}
	// Nothing outlives a preview, whatever its Application does.
	spec.Database.DeletionPolicy, spec.Storage.DeletionPolicy, spec.Auth.DeletionPolicy = v1alpha1.Delete, v1alpha1.Delete, v1alpha1.Delete
	s := subject{
		app: app, names: n, object: preview, kind: "PreviewEnvironment",
		mark:    w.markOf(preview, app.Name+"/pr-"+strconv.FormatInt(preview.Spec.PullRequest, 10)),
		version: fmt.Sprint(preview.Generation, " ", preview.Annotations[v1alpha1.AnnotationRotate], " ", version),
		ownHost: func() error { return w.claimPreviewHost(preview) },
		letGo:   func(but string) { w.freePreviewHosts(kube.KeyOf(preview), but) },
		write: func(ctx context.Context, change func(*v1alpha1.ApplicationStatus)) error {
			err := w.previewStatus.Update(ctx, preview, func(preview *v1alpha1.PreviewEnvironment) {
				change(&preview.Status.ApplicationStatus)
				ends := metav1.NewTime(expiry(preview))
				preview.Status.ExpiresAt, preview.Status.Namespace = &ends, n.Namespace()
			})
			app.Status = preview.Status.ApplicationStatus
			return err
		},
	}
	s.home = s.previewHome(preview.Namespace)
	return s
}

// orphaned reports that the Application of a preview is not there. What was made stays
// until the preview ends.
func (p *pass) orphaned(ctx context.Context) error {
	return p.announce(ctx, func(s *v1alpha1.ApplicationStatus) {
		if s.Phase != v1alpha1.Running {
			s.Phase = v1alpha1.Failed
		}
		set(
			s,
			v1alpha1.ConditionReady,
			false,
			reasonNoParent,
			fmt.Sprintf(
				"spec.applicationRef: there is no Application %s/%s; make it, or delete the preview",
				p.subject.object.GetNamespace(),
				p.subject.app.Name,
			),
		)
	})
}

// makeHome makes the namespace of a preview, without what bounds it: that is the first of the
// children, and holds back the workload. One that is being deleted is waited for, and
// one that was not made for the preview is refused.
func (p *pass) makeHome(ctx context.Context) error {
	if len(p.subject.home) == 0 {
		return nil
	}
	return p.applySome(ctx, p.subject.home[:1]...) // its content only once it is ours
}

// fillHome reports how the namespace is, and while it cannot be used nothing else.
func (p *pass) fillHome(s *v1alpha1.ApplicationStatus) {
	reason := reasonApply
	switch {
	case p.homeErr == nil:
		set(s, v1alpha1.ConditionNamespace, true, reasonReady, "")
		return
	case errors.Is(p.homeErr, apply.ErrNotOurs), errors.Is(p.homeErr, apply.ErrClaimed):
		reason = external.ReasonOwnedByOther
	case errors.Is(p.homeErr, apply.ErrTerminating):
		reason = reasonWaiting
	}
	s.Phase = v1alpha1.Pending
	if reason == external.ReasonOwnedByOther {
		s.Phase = v1alpha1.Failed
	}
	set(s, v1alpha1.ConditionNamespace, false, reason, p.homeErr.Error())
	set(s, v1alpha1.ConditionReady, false, reason, v1alpha1.ConditionNamespace+": "+p.homeErr.Error())
}

// withheld are the variables that a preview does not get: their values are in Secrets of the
// Application, which does not give them to those who choose the image of a preview.
func (p *pass) withheld() (names []string) {
	if p.subject.home == nil || p.subject.app.Spec.Previews.Secrets {
		return nil
	}
	for _, v := range p.subject.app.Spec.EnvVars {
		if v.SecretKeyRef != nil {
			names = append(names, v.Name)
		}
	}
	return names
}

// copiedVariables returns, for a preview, a Secret with the variables that its Application
// takes from Secrets: those are in another namespace. Only the keys that are named are
// copied, and none unless the Application says so.
func (p *pass) copiedVariables(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if p.subject.home == nil || !p.subject.app.Spec.Previews.Secrets {
		return nil, nil
	}
	read, data := map[string]map[string][]byte{}, object{}
	var failed []error
	for i, v := range p.subject.app.Spec.EnvVars {
		if v.SecretKeyRef == nil {
			continue
		}
		from := v.SecretKeyRef
		if _, ok := read[from.Name]; !ok {
			found, err := p.secretData(ctx, from.Name)
			if err != nil {
				failed = append(failed, fmt.Errorf("spec.envVars[%d] of the Application: %w", i, err))
				continue
			}
			read[from.Name] = found
		}
		value, ok := read[from.Name][from.Key]
		if !ok {
			failed = append(
				failed,
				fmt.Errorf(
					"spec.envVars[%d] of the Application: Secret %s/%s has no key %s; add it",
					i,
					p.subject.object.GetNamespace(),
					from.Name,
					from.Key,
				),
			)
			continue
		}
		data[v.Name] = string(value)
	}
	if len(data) == 0 || len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return []*unstructured.Unstructured{
		p.child("v1", "Secret", p.subject.names.Variables(), object{"type": string(corev1.SecretTypeOpaque), "stringData": data}),
	}, nil
}

// secretData reads a Secret beside the subject.
func (p *pass) secretData(ctx context.Context, name string) (map[string][]byte, error) {
	found, err := p.op.client.Resource(secretsResource).Namespace(p.subject.object.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Secret %s/%s; make it", p.subject.object.GetNamespace(), name)
	}
	if err != nil {
		return nil, fmt.Errorf("read a Secret: %w", err)
	}
	var secret corev1.Secret
	err = into(found.Object, &secret)
	return secret.Data, err
}
