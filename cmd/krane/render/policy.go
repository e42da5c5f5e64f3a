package render

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// Policy returns the object of a policy as it was sent, under the name of the
// message, with our labels beside its own. What the server sets is left out, so
// that an object that was read from a cluster may be sent. One that is no
// CiliumNetworkPolicy, that states another name or namespace, or that has
// anything but spec and specs beside its metadata and status, is refused.
//
// The error joins a [*specs.FieldError] for each field that is wrong. It never
// shows the rules.
func (c Cell) Policy(m *ctrlv1.ApplyCiliumNetworkPolicy) ([]*unstructured.Unstructured, error) {
	var p specs.Errors
	sent := p.Policy(m)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("policy %s: %w", m.GetCiliumNetworkPolicyId(), err)
	}
	labels := object{}
	for key, v := range sent.GetLabels() {
		if !strings.HasPrefix(key, prefix) { // ours alone
			labels[key] = v
		}
	}
	maps.Copy(labels, c.labels(Policy, map[string]string{labelPolicyID: m.GetCiliumNetworkPolicyId(), labelPlatform: c.Platform}))
	rest := object{}
	for _, key := range []string{"spec", "specs"} {
		if v, ok := sent.Object[key]; ok {
			rest[key] = v
		}
	}
	policy := newObject(specs.PolicyAPIVersion, specs.PolicyKind, m.GetK8SNamespace(), m.GetK8SName(), labels, rest)
	annotations := sent.GetAnnotations()
	for key := range annotations {
		// Ours alone, and what kubectl writes of what it has applied.
		if strings.HasPrefix(key, prefix) || strings.HasPrefix(key, "kubectl.kubernetes.io/") {
			delete(annotations, key)
		}
	}
	if len(annotations) > 0 {
		policy.SetAnnotations(annotations)
	}
	return []*unstructured.Unstructured{policy}, nil
}
