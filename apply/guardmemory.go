package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// ConfigMapMemory is a [GuardMemory] in a ConfigMap of the cluster, which is made
// with the first deletion. The program needs get, create and patch for it, and create
// for namespaces if the Namespace may be missing.
type ConfigMapMemory struct {
	Client          dynamic.Interface
	Namespace, Name string
}

const memoryKey = "deletions"

// core returns a resource of the core API, such as configmaps.
func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// Load implements GuardMemory.
func (m *ConfigMapMemory) Load(ctx context.Context) ([]byte, string, error) {
	found, err := m.Client.Resource(core("configmaps")).Namespace(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
	}
	text, _, err := unstructured.NestedString(found.Object, "data", memoryKey)
	if err != nil {
		return nil, "", fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
	}
	if text == "" {
		return nil, found.GetResourceVersion(), nil
	}
	return []byte(text), found.GetResourceVersion(), nil
}

// Save implements GuardMemory.
func (m *ConfigMapMemory) Save(ctx context.Context, data []byte, version string) (string, error) {
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{memoryKey: string(data)}}}
	object.SetAPIVersion("v1")
	object.SetKind("ConfigMap")
	object.SetNamespace(m.Namespace)
	object.SetName(m.Name)
	object.SetResourceVersion(version)
	client := m.Client.Resource(core("configmaps")).Namespace(m.Namespace)
	var saved *unstructured.Unstructured
	var err error
	if version != "" {
		body, failed := object.MarshalJSON()
		if failed != nil {
			return "", failed
		}
		saved, err = client.Patch(ctx, m.Name, types.MergePatchType, body, metav1.PatchOptions{})
	} else if saved, err = client.Create(ctx, object, metav1.CreateOptions{}); apierrors.IsNotFound(err) {
		if err = m.makeNamespace(ctx); err == nil {
			saved, err = client.Create(ctx, object, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
	}
	return saved.GetResourceVersion(), nil
}

func (m *ConfigMapMemory) makeNamespace(ctx context.Context) error {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("v1")
	object.SetKind("Namespace")
	object.SetName(m.Namespace)
	_, err := m.Client.Resource(core("namespaces")).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
