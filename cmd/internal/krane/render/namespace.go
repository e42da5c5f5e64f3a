package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/specs"
)

// Namespace returns what a namespace has once, for all that lives in it: the
// Namespace and, when the cell has a registry with a password, the Secret to pull
// images with.
func (c Cell) Namespace(name string) ([]*unstructured.Unstructured, error) {
	var p specs.Errors
	p.Namespace(name)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	objects := []*unstructured.Unstructured{newObject("v1", "Namespace", "", name, c.labels(Namespace, nil), object{})}
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
	return append(objects, newObject("v1", "Secret", name, pullSecretName, c.labels(Namespace, nil), object{
		"type": "kubernetes.io/dockerconfigjson",
		"data": object{".dockerconfigjson": base64.StdEncoding.EncodeToString(login)},
	})), nil
}

// Account returns the default ServiceAccount of a namespace, without a mounted
// token.
func (c Cell) Account(namespace string) ([]*unstructured.Unstructured, error) {
	var p specs.Errors
	p.Namespace(namespace)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	return []*unstructured.Unstructured{
		newObject("v1", "ServiceAccount", namespace, "default", c.labels(Account, nil), object{"automountServiceAccountToken": false}),
	}, nil
}
