// Package isolation has the rules for workloads of tenants that all programs share: what
// their pods may do, which addresses they may not reach, and which namespaces are never
// their homes.
package isolation

import (
	"fmt"
	"slices"
	"strings"
)

// Level is a level of the Pod Security Standards of Kubernetes. Tenants get no other than
// these two: with privileged, a pod is as good as its node.
type Level string

// The levels, the strictest first.
const (
	// Restricted pods run as another user than root, without capabilities.
	Restricted Level = "restricted"
	// Baseline pods may run as root, with the capabilities of the container runtime.
	Baseline Level = "baseline"
)

// Want names the levels, for errors.
const Want = string(Restricted + " or " + Baseline)

// ParseLevel reads a level. Empty text is [Restricted].
func ParseLevel(text string) (Level, error) {
	switch level := Level(text); level {
	case "":
		return Restricted, nil
	case Restricted, Baseline:
		return level, nil
	default:
		return "", fmt.Errorf("%q; want %s", text, Want)
	}
}

// Allows reports whether a pod of another level may run where l is the loosest.
func (l Level) Allows(other Level) bool { return other == Restricted || l == Baseline }

// Pod returns the securityContext of a pod of the level.
func (l Level) Pod() map[string]any {
	context := map[string]any{"seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	if l == Restricted {
		context["runAsNonRoot"] = true
	}
	return context
}

// Container returns the securityContext of a container of the level, nil for none.
func (l Level) Container() map[string]any {
	if l != Restricted {
		return nil
	}
	return map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}
}

// Enforce is the label by which Kubernetes refuses pods in a namespace that are looser than
// the level in its value.
const Enforce = "pod-security.kubernetes.io/enforce"

// MetadataAddresses are the networks from which clouds give credentials to whatever asks:
// of AWS (also of its containers and pods), Google Cloud, Azure, Oracle and Alibaba.
func MetadataAddresses() []string {
	return []string{
		"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128",
	}
}

// WantNamespace describes the names that [PlatformNamespace] leaves, for errors.
const WantNamespace = "not one of the platform: default, frontline, cert-manager, ingress-nginx, argocd, starform-gateway, kube-*, openshift-*, cilium*, istio-*, *-system"

// PlatformNamespace reports whether a namespace is by its name one of the platform, such as
// kube-system: no workload of a tenant has its home there.
func PlatformNamespace(name string) bool {
	names, prefixes, suffix := platform()
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.Contains(names, name) || slices.ContainsFunc(prefixes, begins) || strings.HasSuffix(name, suffix)
}

// PlatformExpression is [PlatformNamespace] in CEL, of the name that an expression has.
func PlatformExpression(name string) string {
	names, prefixes, suffix := platform()
	terms := []string{name + " in ['" + strings.Join(names, "', '") + "']"}
	for _, prefix := range prefixes {
		terms = append(terms, name+".startsWith('"+prefix+"')")
	}
	return strings.Join(append(terms, name+".endsWith('"+suffix+"')"), " || ")
}

func platform() (names, prefixes []string, suffix string) {
	return []string{"default", "frontline", "cert-manager", "ingress-nginx", "argocd", "starform-gateway"},
		[]string{"kube-", "openshift-", "cilium", "istio-"}, "-system"
}
