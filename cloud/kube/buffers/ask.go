package buffers

import (
	"errors"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// What buffers refer to.
var (
	templatesResource   = corev1.SchemeGroupVersion.WithResource("podtemplates") //nolint:gochecknoglobals // constant
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")  //nolint:gochecknoglobals // constant
	statefulsResource   = appsv1.SchemeGroupVersion.WithResource("statefulsets") //nolint:gochecknoglobals // constant
)

// templateKinds are the kinds that a buffer may take its pods from.
func templateKinds() []kube.Kind {
	return []kube.Kind{
		{Resource: templatesResource, Whole: true},
		{Resource: deploymentsResource, Whole: true, Drop: "status"},
		{Resource: statefulsResource, Whole: true, Drop: "status"},
	}
}

// templateOf returns what a buffer takes its pods from.
func (c *Controller) templateOf(b *CapacityBuffer) []kube.Reference {
	if !c.serves(b) {
		return nil
	}
	template, scalable, err := b.reference()
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
func (c *Controller) resolve(objects *kube.Controller[*CapacityBuffer], o *CapacityBuffer) ask {
	a := ask{Key: kube.KeyOf(o), Created: o.CreationTimestamp.Time}
	var current int32
	var template *corev1.PodTemplateSpec
	if template, a.Generation, current, a.Err = c.template(objects, o); a.Err != nil {
		return a
	}
	if name := template.Spec.NodeName; name != "" {
		a.Err = wrong("InvalidTemplate", "the template's spec.nodeName: is %q, must not be set: such a pod runs there and nowhere else", name)
		return a
	}
	pod := cloudkube.Pod(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	pod.Namespace, pod.Name, pod.UID = o.Namespace, o.Name, string(o.UID)
	a.Pod = &pod
	a.Units, a.Limited, a.Err = o.units(&pod, current)
	return a
}

// template returns the pod template of a buffer, its generation, and how many replicas its
// workload has.
func (c *Controller) template(
	objects *kube.Controller[*CapacityBuffer], o *CapacityBuffer,
) (template *corev1.PodTemplateSpec, generation int64, current int32, err error) {
	ref, scalable, err := o.reference()
	if err != nil {
		return nil, 0, 0, err
	}
	found, err := objects.Lookup(c.templateOf(o)[0])
	switch {
	case errors.Is(err, kube.ErrAbsent) && ref != nil:
		return nil, 0, 0, wrong(
			"PodTemplateNotFound", "spec.podTemplateRef.name: PodTemplate %q does not exist in namespace %s", ref.Name, o.Namespace,
		)
	case errors.Is(err, kube.ErrAbsent):
		return nil, 0, 0, wrong(
			"ScalableNotFound", "spec.scalableRef.name: %s %q does not exist in namespace %s", scalable.Kind, scalable.Name, o.Namespace,
		)
	case err != nil:
		return nil, 0, 0, err
	}
	var w struct {
		Template corev1.PodTemplateSpec `json:"template"` // of a PodTemplate
		Spec     struct {
			Replicas *int32                 `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	switch err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &w); {
	case err != nil:
		return nil, 0, 0, fmt.Errorf("%s %q: %w", found.GetKind(), found.GetName(), err)
	case ref != nil:
		return &w.Template, found.GetGeneration(), 0, nil
	}
	current = 1
	if w.Spec.Replicas != nil {
		current = *w.Spec.Replicas
	}
	return &w.Spec.Template, 0, current, nil
}

// same reports whether a plan of the one is a plan of the other.
func (a ask) same(b ask) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return a.Units == b.Units && a.Limited == b.Limited && a.Generation == b.Generation &&
		text(a.Err) == text(b.Err) && reflect.DeepEqual(a.Pod, b.Pod)
}
