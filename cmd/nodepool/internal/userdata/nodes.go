package userdata

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// labels returns those that a kubelet may register with.
func (c Config) labels() (map[string]string, error) {
	all := map[string]string{}
	maps.Copy(all, c.Kubelet.NodeLabels)
	maps.Copy(all, c.Labels)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			return nil, fmt.Errorf("label %q of the template or of spec.kubelet.nodeLabels: %s", key, strings.Join(why, "; "))
		}
		if why := validation.IsValidLabelValue(all[key]); len(why) > 0 {
			return nil, fmt.Errorf("label %s of the template or of spec.kubelet.nodeLabels is %q: %s", key, all[key], strings.Join(why, "; "))
		}
		if !registrable(key) {
			delete(all, key)
		}
	}
	return all, nil
}

// registrable reports whether a kubelet starts with a label: it does not with most of
// those that belong to Kubernetes.
func registrable(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone:
		return true
	}
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	below := func(of ...string) bool {
		return slices.ContainsFunc(of, func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) })
	}
	return !below("kubernetes.io", "k8s.io") || below("node.kubernetes.io", "kubelet.kubernetes.io")
}

func (c Config) taints() ([]corev1.Taint, error) {
	all := slices.Clone(c.Taints)
	for _, t := range c.Kubelet.NodeTaints {
		if !slices.ContainsFunc(all, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			all = append(all, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	for i, t := range all {
		why := append(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value)...)
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectPreferNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			why = append(why, "effect must be NoSchedule, PreferNoSchedule or NoExecute")
		}
		if slices.ContainsFunc(all[:i], func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			why = append(why, "key and effect must not be there twice")
		}
		if len(why) > 0 {
			return nil, fmt.Errorf("taint %q of the template or of spec.kubelet.nodeTaints: %s", t.ToString(), strings.Join(why, "; "))
		}
	}
	return all, nil
}
