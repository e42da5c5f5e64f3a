package specs

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// What a policy is.
const (
	PolicyAPIVersion = "cilium.io/v2"
	PolicyKind       = "CiliumNetworkPolicy"
)

// Policy checks a network policy, and returns the object in it.
func (e *Errors) Policy(m *ctrlv1.ApplyCiliumNetworkPolicy) *unstructured.Unstructured {
	e.Namespace(m.GetK8SNamespace())
	if len(validation.IsDNS1123Subdomain(m.GetK8SName())) > 0 {
		e.Add("k8s_name", m.GetK8SName(), "the name of an object: lower case letters, digits, - and .")
	}
	e.label("cilium_network_policy_id", m.GetCiliumNetworkPolicyId())
	return e.readPolicy(m)
}

func (e *Errors) readPolicy(m *ctrlv1.ApplyCiliumNetworkPolicy) *unstructured.Unstructured {
	const shown = "[not shown]"
	sent := &unstructured.Unstructured{}
	// The decoder's error shows what it read.
	if err := json.Unmarshal(m.GetPolicy(), &sent.Object); err != nil || sent.Object == nil {
		e.Add("policy", shown, "a JSON object")
		return sent
	}
	if sent.GetAPIVersion() != PolicyAPIVersion || sent.GetKind() != PolicyKind {
		e.Add("policy", sent.GetAPIVersion()+" "+sent.GetKind(), PolicyAPIVersion+" "+PolicyKind)
	}
	if name := sent.GetName(); name != "" && name != m.GetK8SName() {
		e.Add("policy.metadata.name", name, "k8s_name, which is "+m.GetK8SName()+", or none")
	}
	if namespace := sent.GetNamespace(); namespace != "" && namespace != m.GetK8SNamespace() {
		e.Add("policy.metadata.namespace", namespace, "k8s_namespace, which is "+m.GetK8SNamespace()+", or none")
	}
	rules := false
	for key, v := range sent.Object {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		case "spec":
			if _, ok := v.(map[string]any); !ok {
				e.Add("policy.spec", shown, "an object")
			}
			rules = true
		case "specs":
			if _, ok := v.([]any); !ok {
				e.Add("policy.specs", shown, "a list")
			}
			rules = true
		default:
			e.Add("policy", key, "no other fields than spec and specs")
		}
	}
	if !rules {
		e.Add("policy", shown, "spec or specs")
	}
	for _, key := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(sent.Object, "metadata", key); err != nil {
			e.Add("policy.metadata."+key, shown, "a map of text")
		}
	}
	return sent
}
