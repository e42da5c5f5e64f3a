package render

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

const (
	ciliumGroup   = "cilium.io"
	ciliumVersion = "v2"
	ciliumKind    = "CiliumNetworkPolicy"
)

// Policy returns the object of a policy as it was sent, under the name of the
// message, with our labels beside its own. What the server sets is left out, so
// that an object that was read from a cluster may be sent. One that is no
// CiliumNetworkPolicy, that states another name or namespace, or that has
// anything but spec and specs beside its metadata and status, is refused.
//
// The error joins a *FieldError for each field that is wrong. It never
// shows the rules.
func (c Cell) Policy(m *ctrlv1.ApplyCiliumNetworkPolicy) ([]*unstructured.Unstructured, error) {
	var p problems
	p.namespace(m.GetK8SNamespace())
	if len(validation.IsDNS1123Subdomain(m.GetK8SName())) > 0 {
		p.add("k8s_name", m.GetK8SName(), "the name of an object: lower case letters, digits, - and .")
	}
	p.label("cilium_network_policy_id", m.GetCiliumNetworkPolicyId())
	sent := p.readPolicy(m)
	if err := p.err(); err != nil {
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
	policy := newObject(ciliumGroup+"/"+ciliumVersion, ciliumKind, m.GetK8SNamespace(), m.GetK8SName(), labels, rest)
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

func (p *problems) readPolicy(m *ctrlv1.ApplyCiliumNetworkPolicy) *unstructured.Unstructured {
	const shown = "[not shown]"
	sent := &unstructured.Unstructured{}
	// The decoder's error shows what it read.
	if err := json.Unmarshal(m.GetPolicy(), &sent.Object); err != nil || sent.Object == nil {
		p.add("policy", shown, "a JSON object")
		return sent
	}
	if sent.GetAPIVersion() != ciliumGroup+"/"+ciliumVersion || sent.GetKind() != ciliumKind {
		p.add("policy", sent.GetAPIVersion()+" "+sent.GetKind(), ciliumGroup+"/"+ciliumVersion+" "+ciliumKind)
	}
	if name := sent.GetName(); name != "" && name != m.GetK8SName() {
		p.add("policy.metadata.name", name, "k8s_name, which is "+m.GetK8SName()+", or none")
	}
	if namespace := sent.GetNamespace(); namespace != "" && namespace != m.GetK8SNamespace() {
		p.add("policy.metadata.namespace", namespace, "k8s_namespace, which is "+m.GetK8SNamespace()+", or none")
	}
	rules := false
	for key, v := range sent.Object {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		case "spec":
			if _, ok := v.(object); !ok {
				p.add("policy.spec", shown, "an object")
			}
			rules = true
		case "specs":
			if _, ok := v.([]any); !ok {
				p.add("policy.specs", shown, "a list")
			}
			rules = true
		default:
			p.add("policy", key, "no other fields than spec and specs")
		}
	}
	if !rules {
		p.add("policy", shown, "spec or specs")
	}
	for _, key := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(sent.Object, "metadata", key); err != nil {
			p.add("policy.metadata."+key, shown, "a map of text")
		}
	}
	return sent
}
