package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Namespace returns what a namespace has once, for all that lives in it: the
// Namespace, its default ServiceAccount without a mounted token, and, when the
// cell has a registry with a password, the Secret to pull images with.
func (c Cell) Namespace(name string) ([]*unstructured.Unstructured, error) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return nil, fmt.Errorf("namespace: %w", &FieldError{Field: "k8s_namespace", Value: name, Want: wantLabelName})
	}
	labels := func() object { return c.labels(Namespace, nil) }
	objects := []*unstructured.Unstructured{
		newObject("v1", "Namespace", "", name, labels(), object{}),
		newObject("v1", "ServiceAccount", name, "default", labels(), object{"automountServiceAccountToken": false}),
	}
	if c.Registry == (Registry{}) {
		return objects, nil
	}
	login, err := json.Marshal(map[string]any{"auths": map[string]any{c.Registry.URL: map[string]string{
		"username": c.Registry.Username, "password": c.Registry.Password,
		"auth": base64.StdEncoding.EncodeToString([]byte(c.Registry.Username + ":" + c.Registry.Password)),
	}}})
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	return append(objects, newObject("v1", "Secret", name, pullSecretName, labels(), object{
		"type": "kubernetes.io/dockerconfigjson",
		"data": object{".dockerconfigjson": base64.StdEncoding.EncodeToString(login)},
	})), nil
}
