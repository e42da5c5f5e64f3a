package operator_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Note is a kind of objects. Its definition is in the cluster.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Text string `json:"text"`
		Host string `json:"host,omitempty"` // empty: no record
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
		Outside            []external.Thing   `json:"outside,omitempty"`
	} `json:"status,omitzero"`
}

// Each Note has a ConfigMap with its text. An operator.Process runs the operator in a program, with
// a Lease, health and metrics.
func ExampleOperator() {
	o := &operator.Operator[*Note]{
		Name: "note-operator", Domain: "example.com", Scheme: scheme.Scheme,
		Kind:       schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Note"},
		Owns:       []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		Conditions: func(note *Note) *[]metav1.Condition { return &note.Status.Conditions },
		Children: func(_ context.Context, note *Note) ([]operator.Object, error) {
			return operator.Objects(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: note.Name}, Data: map[string]string{"text": note.Spec.Text},
			}), nil
		},
		Config: &rest.Config{Host: "https://127.0.0.1:6443"},
	}
	process := operator.Process{Config: o.Config, Resource: o.Kind.GroupVersion().WithResource("notes"), Work: o.Work}
	_ = process.Start // in a program: process.Start(ctx)

	fmt.Println("valid:", o.Validate() == nil)
	for _, rule := range o.Rules() { // of the ClusterRole
		fmt.Println(rule.APIGroups[0]+"/"+strings.Join(rule.Resources, ", ")+":", strings.Join(rule.Verbs, ", "))
	}
	// Output:
	// valid: true
	// /configmaps: get, list, watch, create, patch, delete
	// events.k8s.io/events: create, patch
	// example.com/notes: get, list, watch, patch
	// example.com/notes/finalizers: update
	// example.com/notes/status: patch
}

// Each Note with a host has a record in a service of names. It is in the status before it is made,
// and goes before the Note does.
func ExampleOutside() {
	records := map[string]string{} // the service: the marks of its records by their names
	outside := &operator.Outside[*Note]{
		Things: func(note *Note) *[]external.Thing { return &note.Status.Outside },
		Parts: func(note *Note) []*external.Part {
			mark := external.Mark{
				Domain: "example.com", Cluster: "c", Namespace: note.Namespace, Name: note.Name, UID: string(note.UID),
			}
			return []*external.Part{{
				Name: "record", Wanted: note.Spec.Host != "",
				Kinds: []string{"Record"}, Things: []external.Thing{{Kind: "Record", ID: note.Spec.Host}},
				Make: func(context.Context) error {
					if text, exists := records[note.Spec.Host]; exists && mark.Claim(text) != external.Ours {
						return external.Owned(mark.Domain, "record "+note.Spec.Host, text)
					}
					records[note.Spec.Host] = mark.String()
					return nil
				},
				Delete: func(_ context.Context, record external.Thing) error {
					if mark.Claim(records[record.ID]) == external.Ours {
						delete(records, record.ID)
					}
					return nil
				},
			}}
		},
	}
	o := operator.Operator[*Note]{Outside: outside} // and the fields of the example of Operator

	note := &Note{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "hello", UID: "u1"}}
	note.Spec.Host = "hello.example.com"
	record := o.Outside.Parts(note)[0]
	fmt.Println(record.Make(context.Background()), records)
	fmt.Println(record.Delete(context.Background(), record.Things[0]), records)
	// Output:
	// <nil> map[hello.example.com:example.com cluster=c namespace=team name=hello uid=u1]
	// <nil> map[]
}
