package render

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Namespace returns what a namespace has once, for all that lives in it: the
// Namespace, with the level of pods that it enforces, the network policy of what leaves
// it and, when the cell has a registry with a password, the Secret to pull images with.
func (c Cell) Namespace(name string) ([]*unstructured.Unstructured, error) {
	var p specs.Errors
	p.Namespace(name)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	objects := []*unstructured.Unstructured{
		newObject("v1", "Namespace", "", name, c.labels(Namespace, map[string]string{isolation.Enforce: string(c.podSecurity())}), object{}),
		c.egress(name),
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
	return append(objects, newObject("v1", "Secret", name, pullSecretName, c.labels(Namespace, nil), object{
		"type": "kubernetes.io/dockerconfigjson",
		"data": object{".dockerconfigjson": base64.StdEncoding.EncodeToString(login)},
	})), nil
}

// egress closes the API server and the metadata services of clouds to all pods of ours in
// a namespace. What is denied stays denied, whatever another policy allows.
func (c Cell) egress(namespace string) *unstructured.Unstructured {
	var metadata []any
	for _, address := range isolation.MetadataAddresses() {
		metadata = append(metadata, address)
	}
	// Two regions may have pods in one namespace.
	name := kube.Name(kube.SubdomainLimit, manager, "egress", c.Region)
	return newObject(specs.PolicyAPIVersion, specs.PolicyKind, namespace, name, c.labels(Namespace, nil), object{"spec": object{
		"endpointSelector": object{"matchLabels": object{labelManagedBy: manager, labelRegion: c.Region}},
		"egress":           []any{object{"toEntities": []any{"all"}}},
		"egressDeny":       []any{object{"toEntities": []any{"kube-apiserver"}}, object{"toCIDR": metadata}},
	}})
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
