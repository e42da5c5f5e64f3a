package operator

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/buffer"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// What buffers refer to, and the definition of buffers.
var (
	templatesResource   = corev1.SchemeGroupVersion.WithResource("podtemplates") //nolint:gochecknoglobals // constant
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")  //nolint:gochecknoglobals // constant
	statefulsResource   = appsv1.SchemeGroupVersion.WithResource("statefulsets") //nolint:gochecknoglobals // constant
	definitionsResource = schema.GroupVersionResource{                           //nolint:gochecknoglobals // constant
		Group:    "apiextensions.k8s.io",
		Version:  "v1",
		Resource: "customresourcedefinitions",
	}
)

// definition has the fields that are read of a CustomResourceDefinition.
type definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec struct {
		Versions []definitionVersion `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type definitionVersion struct {
	Name   string `json:"name"`
	Served bool   `json:"served"`
}

// serves reports whether the API server serves a version of the kind.
func (d *definition) serves(version string) bool {
	if d == nil || d.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(
		d.Status.Conditions,
		func(c metav1.Condition) bool { return c.Type == "Established" && c.Status == metav1.ConditionTrue },
	) &&
		slices.ContainsFunc(d.Spec.Versions, func(v definitionVersion) bool { return v.Name == version && v.Served })
}

// templateKinds are the kinds that a buffer may take its pods from.
func templateKinds() []kube.Kind {
	return []kube.Kind{
		{
			Resource: templatesResource,
			Whole:    true,
		},
		{Resource: deploymentsResource, Whole: true, Drop: "status"},
		{Resource: statefulsResource, Whole: true, Drop: "status"},
	}
}

// templateOf returns what a buffer takes its pods from.
func templateOf(b *buffer.CapacityBuffer) []kube.Reference {
	if !b.Ours() {
		return nil
	}
	template, scalable, err := b.Reference()
	switch {
	case err != nil:
		return nil
	case template != nil:
		return []kube.Reference{{Resource: templatesResource, Namespace: b.Namespace, Name: template.Name}}
	case scalable.Kind == "StatefulSet":
		return []kube.Reference{{Resource: statefulsResource, Namespace: b.Namespace, Name: scalable.Name}}
	}
	return []kube.Reference{{Resource: deploymentsResource, Namespace: b.Namespace, Name: scalable.Name}}
}

// resolve reads what a buffer asks for.
func (b *buffers) resolve(o *buffer.CapacityBuffer) bufferAsk {
	ask := bufferAsk{Asked: buffer.Asked{Key: kube.KeyOf(o)}}
	var current int32
	var template *corev1.PodTemplateSpec
	if template, ask.generation, current, ask.err = b.template(o); ask.err != nil {
		return ask
	}
	if name := template.Spec.NodeName; name != "" {
		ask.err = &buffer.Error{
			Reason:  "InvalidTemplate",
			Message: fmt.Sprintf("the template's spec.nodeName: is %q, must not be set: such a pod runs there and nowhere else", name),
		}
		return ask
	}
	pod := cloudkube.Pod(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	pod.Namespace, pod.Name, pod.UID = o.Namespace, o.Name, string(o.UID)
	ask.Pod = &pod
	ask.Units, ask.err = o.Units(&pod, current)
	return ask
}

// template returns the pod template of a buffer, its generation, and how many replicas its
// workload has.
func (b *buffers) template(o *buffer.CapacityBuffer) (template *corev1.PodTemplateSpec, generation int64, current int32, err error) {
	ref, scalable, err := o.Reference()
	if err != nil {
		return nil, 0, 0, err
	}
	found, err := b.objects.Lookup(templateOf(o)[0])
	switch {
	case errors.Is(err, kube.ErrAbsent) && ref != nil:
		return nil, 0, 0, &buffer.Error{
			Reason:  "PodTemplateNotFound",
			Message: fmt.Sprintf("spec.podTemplateRef.name: PodTemplate %q does not exist in namespace %s", ref.Name, o.Namespace),
		}
	case errors.Is(err, kube.ErrAbsent):
		return nil, 0, 0, &buffer.Error{
			Reason:  "ScalableNotFound",
			Message: fmt.Sprintf("spec.scalableRef.name: %s %q does not exist in namespace %s", scalable.Kind, scalable.Name, o.Namespace),
		}
	case err != nil:
		return nil, 0, 0, err
	}
	if ref != nil {
		t := &corev1.PodTemplate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, t); err != nil {
			return nil, 0, 0, fmt.Errorf("PodTemplate %q: %w", ref.Name, err)
		}
		return &t.Template, t.Generation, 0, nil
	}
	var w struct {
		Spec struct {
			Replicas *int32                 `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &w); err != nil {
		return nil, 0, 0, fmt.Errorf("%s %q: %w", scalable.Kind, scalable.Name, err)
	}
	current = 1
	if w.Spec.Replicas != nil {
		current = *w.Spec.Replicas
	}
	return &w.Spec.Template, 0, current, nil
}

// same reports whether a plan of the one is a plan of the other.
func (a bufferAsk) same(b bufferAsk) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return a.Key == b.Key && a.Units == b.Units && a.generation == b.generation && text(a.err) == text(b.err) &&
		reflect.DeepEqual(a.Pod, b.Pod)
}
