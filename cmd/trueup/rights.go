package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// right is one that the changes of a plan need.
type right struct{ verb, group, resource, namespace string }

// rights returns an error that names each right that the plan needs and the user lacks,
// before anything is written.
func (s *session) rights(ctx context.Context, plan diff.Plan) error {
	needed := map[right]bool{}
	for _, c := range plan.Changes {
		kind := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
		mapping, err := s.cluster.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			continue // its definition comes first
		}
		if err != nil {
			return err
		}
		for _, verb := range map[diff.Action][]string{
			diff.Create: {"create", "patch"}, diff.Update: {"patch"}, diff.Recreate: {"delete", "create", "patch"},
			diff.Delete: {"delete"}, diff.Release: {"patch"},
		}[c.Action] {
			needed[right{verb, kind.Group, mapping.Resource.Resource, c.Namespace}] = true
		}
	}
	var missing []error
	for _, r := range slices.SortedFunc(maps.Keys(needed), func(a, b right) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		review := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": map[string]any{
				"verb": r.verb, "group": r.group, "resource": r.resource, "namespace": r.namespace,
			}},
		}}
		resource := schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
		answer, err := s.cluster.objects.Resource(resource).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if allowed, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed"); !allowed {
			where := "in the cluster"
			if r.namespace != "" {
				where = "in the namespace " + r.namespace
			}
			missing = append(missing, fmt.Errorf("right is missing: %s %s %s; nothing was written",
				r.verb, schema.GroupResource{Group: r.group, Resource: r.resource}, where))
		}
	}
	return errors.Join(missing...)
}

// explain makes the errors of objects ones for people, a line each: with the file and line of
// the object, the tool to which it belongs if it is not of the set, and without the long values
// in the answers of the server.
func (s *session) explain(ctx context.Context, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || !strings.Contains(err.Error(), "\n") {
		return s.explainOne(ctx, err)
	}
	var explained []error
	for _, err := range joined.Unwrap() {
		explained = append(explained, s.explain(ctx, err))
	}
	return errors.Join(explained...)
}

func (s *session) explainOne(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	id, _, _ := strings.Cut(err.Error(), ": ")
	if errors.Is(err, apply.ErrNotOurs) {
		if live, unread := s.get(ctx, id); unread == nil {
			err = fmt.Errorf("%s: is not of this set: %s", id, belongsTo(live))
		}
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsInvalid(err) && status.ErrStatus.Details != nil {
		err = invalid(id, status.ErrStatus.Details.Causes)
	}
	if at := s.where[id]; at != "" {
		return fmt.Errorf("%s: %w", at, err)
	}
	return err
}

// longest is how many characters of what a server says about a field are shown.
const longest = 160

// invalid is the server's refusal of an object, which has the value of each wrong field, however
// long that is.
func invalid(id string, causes []metav1.StatusCause) error {
	var text []string
	immutable := false
	for _, c := range causes {
		immutable = immutable || strings.Contains(c.Message, "immutable")
		if n := []rune(c.Message); len(n) > longest {
			c.Message = string(n[:longest/4]) + " ... " + string(n[len(n)-longest/2:])
		}
		text = append(text, c.Field+": "+c.Message)
	}
	hint := ""
	if immutable {
		hint = "; to delete it and create it again: --recreate"
	}
	return fmt.Errorf("%s: the server refuses it: %s%s", id, strings.Join(text, "; "), hint)
}

// get reads a live object.
func (s *session) get(ctx context.Context, text string) (*unstructured.Unstructured, error) {
	id, err := apply.ParseID(text)
	if err != nil {
		return nil, err
	}
	mapping, err := s.cluster.mapper.RESTMapping(id.GroupKind())
	if err != nil {
		return nil, err
	}
	return s.cluster.objects.Resource(mapping.Resource).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
}

// belongsTo names the tool that an object shows to be its owner.
func belongsTo(live *unstructured.Unstructured) string {
	labels, annotations := live.GetLabels(), live.GetAnnotations()
	named := func(values map[string]string, key string) string { return values[key] }
	for _, tool := range []struct{ name, from, owner string }{
		{"Helm", "helm", named(annotations, "meta.helm.sh/release-name")},
		{"Flux", "flux", named(labels, "kustomize.toolkit.fluxcd.io/name")},
		{"Flux", "flux", named(labels, "helm.toolkit.fluxcd.io/name")},
		{"Argo CD", "argocd", named(annotations, "argocd.argoproj.io/tracking-id")},
		{"Argo CD", "argocd", named(labels, "argocd.argoproj.io/instance")},
	} {
		if tool.owner != "" {
			return fmt.Sprintf("it is of %s: %s; that tool must let it go, then: trueup adopt --from %s", tool.name, tool.owner, tool.from)
		}
	}
	if set := labels[labelSet]; set != "" {
		return fmt.Sprintf("it is of the set %s in the namespace %s, part %s", set, labels[labelSetNamespace], labels[labelPart])
	}
	if controller := metav1.GetControllerOf(live); controller != nil {
		return fmt.Sprintf("it is controlled by %s %s", controller.Kind, controller.Name)
	}
	if annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		return "kubectl apply made it; to take it: trueup adopt --from kubectl"
	}
	var names []string
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource == "" && !slices.Contains(names, entry.Manager) {
			names = append(names, entry.Manager)
		}
	}
	return fmt.Sprintf("made by %[1]s; to take it: trueup adopt --from %[1]s", strings.Join(names, ","))
}

// unready adds to the error why each workload is not ready.
func (s *session) unready(ctx context.Context, err error) error {
	waits, ok := errors.AsType[*apply.NotReadyError](err)
	if !ok {
		return err
	}
	var lines []error
	for _, id := range slices.SortedFunc(maps.Keys(waits.Objects), apply.ID.Compare) {
		lines = append(lines, fmt.Errorf("%s: %s", id, s.reason(ctx, id, waits.Objects[id])))
	}
	return errors.Join(lines...)
}

// waitingFor returns the first object that is not ready, and why, on one line.
func (s *session) waitingFor(ctx context.Context, statuses map[apply.ID]readiness.Result) string {
	var left []apply.ID
	for id, status := range statuses {
		if status.Status != readiness.Current {
			left = append(left, id)
		}
	}
	if len(left) == 0 {
		return "..."
	}
	slices.SortFunc(left, apply.ID.Compare)
	return fmt.Sprintf("%d of %d; %s: %s", len(left), len(statuses), left[0], s.reason(ctx, left[0], statuses[left[0]]))
}

func (s *session) reason(ctx context.Context, id apply.ID, status readiness.Result) string {
	text := fmt.Sprintf("%s: %s", status.Status, status.Message)
	if cause, err := s.applier.Why(ctx, id); err == nil && cause.Reason != "" {
		text += fmt.Sprintf(" (%s: %s)", cause.Reason, cause.Message)
	}
	return text
}
