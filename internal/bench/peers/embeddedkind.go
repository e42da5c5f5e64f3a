package main

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
)

// Holder is the parent of the operators in one Manager: it has a status with conditions.
type Holder struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Size int64 `json:"size,omitempty"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (h *Holder) DeepCopyObject() runtime.Object {
	c := *h
	h.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = slices.Clone(h.Status.Conditions)
	return &c
}

// HolderList is what a cache lists.
type HolderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Holder `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *HolderList) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ListMeta)
	c.Items = make([]Holder, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Holder) // it returns no other
	}
	return &c
}

func holderKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "embedded.example.com", Version: "v1", Kind: "Holder"}
}

func holderResource() schema.GroupVersionResource {
	return holderKind().GroupVersion().WithResource("holders")
}

const holderDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: holders.embedded.example.com}
spec:
  group: embedded.example.com
  names: {plural: holders, singular: holder, kind: Holder, listKind: HolderList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// holderScheme is the common scheme with the kind.
func holderScheme() *runtime.Scheme {
	version := holderKind().GroupVersion()
	scheme.Scheme.AddKnownTypeWithName(holderKind(), &Holder{})
	scheme.Scheme.AddKnownTypeWithName(version.WithKind("HolderList"), &HolderList{})
	metav1.AddToGroupVersion(scheme.Scheme, version)
	return scheme.Scheme
}

func (b *bench) defineHolder(ctx context.Context) error {
	if err := b.cluster.Apply(ctx, holderDefinition); err != nil {
		return err
	}
	_, err := b.cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd/holders.embedded.example.com", "--timeout=300s")
	return err
}

// readyAtOnce reports whether an object of a kind is ready without a controller of Kubernetes.
func readyAtOnce(kind string) bool {
	return slices.Contains([]string{"ConfigMap", "Secret", "Service"}, kind)
}

// holderKinds are the kinds of the children.
func holderKinds() (kinds []schema.GroupVersionKind) {
	for kind := range benchobjects.Resources() {
		if readyAtOnce(kind.Kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// holderChildren returns the ten objects of a parent, all of which are ready at once.
func holderChildren(parent metav1.Object) []*unstructured.Unstructured {
	children := benchobjects.Mix{Namespace: parent.GetNamespace(), Count: 30}.Objects()
	children = slices.DeleteFunc(children, func(c *unstructured.Unstructured) bool { return !readyAtOnce(c.GetKind()) })[:10]
	for _, child := range children {
		child.SetName(parent.GetName() + "-" + child.GetName())
	}
	return children
}
