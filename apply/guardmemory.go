package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// GuardMemory stores a few kilobytes. [ConfigMapMemory] and [FileMemory] are two. It is
// used by one goroutine at a time.
type GuardMemory interface {
	// Load returns the data of the last Save and its version, nil if nothing was saved.
	Load(ctx context.Context) (data []byte, version string, err error)
	// Save replaces the data of this version and returns the new version. Version ""
	// requires that nothing is saved yet. It fails if there is another version.
	Save(ctx context.Context, data []byte, version string) (saved string, err error)
}

// FileMemory is a [GuardMemory] in a file, for one program at a time. The file and its
// folder are made with the first deletion.
type FileMemory struct {
	Path string
}

// Load implements GuardMemory. The version is a hash of the data.
func (m *FileMemory) Load(context.Context) ([]byte, string, error) {
	data, err := os.ReadFile(m.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	return data, hashOf(string(data)), nil
}

// Save implements GuardMemory. A program that is killed meanwhile leaves the old data
// or the new.
func (m *FileMemory) Save(ctx context.Context, data []byte, version string) (string, error) {
	if _, found, err := m.Load(ctx); err != nil || found != version {
		return "", errors.Join(err, fmt.Errorf("%s: was changed by another program", m.Path))
	}
	folder := filepath.Dir(m.Path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(folder, ".deletions-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), m.Path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return hashOf(string(data)), nil
}

// ConfigMapMemory is a [GuardMemory] in a ConfigMap of the cluster, which is made
// with the first Save. The program needs get, create and patch for it, and create
// for namespaces if the Namespace may be missing.
type ConfigMapMemory struct {
	Client          dynamic.Interface
	Namespace, Name string
	// Key is the key of the ConfigMap's data. Default "deletions".
	Key string
}

func (m *ConfigMapMemory) key() string { return cmp.Or(m.Key, "deletions") }

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
	text, _, err := unstructured.NestedString(found.Object, "data", m.key())
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
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{m.key(): string(data)}}}
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

// hashOf shortens the name of a unit, and keeps it out of the memory.
func hashOf(unit string) string {
	sum := sha256.Sum256([]byte(unit))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
