package webapp

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is what a cache of controller-runtime lists. Nothing else needs this file.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []WebApp `json:"items"`
}

// AddToScheme makes the kind known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(Version().WithKind("WebApp"), &WebApp{})
	scheme.AddKnownTypeWithName(Version().WithKind("WebAppList"), &List{})
	metav1.AddToGroupVersion(scheme, Version())
	return nil
}

// DeepCopyObject implements runtime.Object.
func (w *WebApp) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Config, c.Status.Conditions = maps.Clone(w.Spec.Config), slices.Clone(w.Status.Conditions)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]WebApp, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*WebApp) // it returns no other
	}
	return &c
}
