package upstream

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// deduced is a converter for kinds without a schema: that of the metadata is known,
// and the rest is as it looks.
var deduced = sync.OnceValue(func() managedfields.TypeConverter { //nolint:gochecknoglobals // never changed
	parser, err := typed.NewParser(customSchema)
	if err != nil {
		return managedfields.NewDeducedTypeConverter() // of a constant: it cannot fail
	}
	return converter{parser.Type("custom")}
})

// customSchema is what a real server makes of a custom resource that preserves
// unknown fields.
const customSchema = `types:
- name: custom
  map:
    fields:
    - name: apiVersion
      type: {scalar: string}
    - name: kind
      type: {scalar: string}
    - name: metadata
      type: {namedType: metadata}
    elementType: {namedType: deduced}
- name: metadata
  map:
    fields:
    - name: annotations
      type: {map: {elementType: {scalar: string}}}
    - name: finalizers
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
    - name: labels
      type: {map: {elementType: {scalar: string}}}
    - name: managedFields
      type: {list: {elementType: {namedType: atomic}, elementRelationship: atomic}}
    - name: ownerReferences
      type: {list: {elementType: {namedType: owner}, elementRelationship: associative, keys: [uid]}}
    elementType: {namedType: deduced}
- name: owner
  map:
    fields:
    - name: uid
      type: {scalar: string}
      default: ""
    elementType: {namedType: deduced}
    elementRelationship: atomic
- name: atomic
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: atomic}, elementRelationship: atomic}
- name: deduced
  scalar: untyped
  list: {elementType: {namedType: atomic}, elementRelationship: atomic}
  map: {elementType: {namedType: deduced}, elementRelationship: separable}
`

// converter has one type for all kinds.
type converter struct{ of typed.ParseableType }

// ObjectToTyped implements managedfields.TypeConverter.
func (c converter) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("upstream: %T is not unstructured", o)
	}
	return c.of.FromUnstructured(u.Object, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	o, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("upstream: no object but %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: o}, nil
}
