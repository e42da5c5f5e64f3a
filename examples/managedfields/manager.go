// Package managedfields gives a simulated API server server-side apply: the code
// of a real server decides who owns which field.
package managedfields

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/seed-9e1ffd66/trueup/simtest"
)

// Manager keeps metadata.managedFields. It knows no schemas: a list is one field,
// as in a custom resource without list types. The zero value is ready. It is safe
// for concurrent use. Assign it to Scenario.Fields or Server.Fields.
type Manager struct {
	mu    sync.Mutex
	kinds map[string]*managedfields.FieldManager
}

// Apply implements [simtest.FieldManager]. The error of a conflict names the other
// managers and their fields.
func (m *Manager) Apply(live, config simtest.Object, w simtest.Write) (simtest.Object, error) {
	fields, err := m.of(config, w.Subresource)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = simtest.Object{"apiVersion": config["apiVersion"], "kind": config["kind"]}
	}
	return object(fields.Apply(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: config}, w.Manager, w.Force))
}

// Update implements [simtest.FieldManager].
func (m *Manager) Update(live, next simtest.Object, w simtest.Write) (simtest.Object, error) {
	fields, err := m.of(next, w.Subresource)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = simtest.Object{"apiVersion": next["apiVersion"], "kind": next["kind"]}
	}
	return object(fields.Update(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: next}, w.Manager))
}

// object returns what a field manager returned, as JSON decodes it.
func object(o runtime.Object, err error) (simtest.Object, error) {
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var decoded simtest.Object
	return decoded, json.Unmarshal(data, &decoded)
}

// of returns the field manager of a kind.
func (m *Manager) of(o simtest.Object, subresource string) (*managedfields.FieldManager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := schema.FromAPIVersionAndKind(fmt.Sprint(o["apiVersion"]), fmt.Sprint(o["kind"]))
	name := kind.String() + " " + subresource
	if m.kinds == nil {
		m.kinds = map[string]*managedfields.FieldManager{}
	}
	if m.kinds[name] == nil {
		var err error
		m.kinds[name], err = managedfields.NewDefaultCRDFieldManager(
			managedfields.NewDeducedTypeConverter(),
			same{},
			same{},
			same{},
			kind,
			kind.GroupVersion(),
			subresource,
			nil,
		)
		if err != nil {
			return nil, err
		}
	}
	return m.kinds[name], nil
}

// same converts nothing: a simulated server serves one version of a kind.
type same struct{}

// Convert implements runtime.ObjectConvertor.
func (same) Convert(in, out, _ any) error {
	return fmt.Errorf("managedfields: no conversion of %T to %T", in, out)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (same) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (same) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default implements runtime.ObjectDefaulter.
func (same) Default(runtime.Object) {}

// New implements runtime.ObjectCreater.
func (same) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o, nil
}
