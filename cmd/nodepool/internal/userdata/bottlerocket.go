package userdata

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
	corev1 "k8s.io/api/core/v1"
)

// bottlerocket returns the settings of the class merged with the settings of the cluster,
// with sorted keys.
func (c Config) bottlerocket(labels map[string]string, taints []corev1.Taint) (string, error) {
	all := map[string]any{}
	if _, err := toml.Decode(c.Custom, &all); err != nil {
		return "", fmt.Errorf("spec.customUserData is not TOML, which Bottlerocket reads: %w", err)
	}
	kubernetes, err := table(all, "settings", "kubernetes")
	if err != nil {
		return "", err
	}
	kubernetes["cluster-name"] = c.ClusterName
	kubernetes["api-server"] = c.Endpoint
	kubernetes["cluster-certificate"] = c.CA
	if c.Kubelet.MaxPods != nil {
		kubernetes["max-pods"] = *c.Kubelet.MaxPods
	}
	if _, own := kubernetes["cluster-dns-ip"]; !own && c.dns().IsValid() {
		kubernetes["cluster-dns-ip"] = c.dns().String()
	}
	if len(labels) > 0 {
		into, err := table(all, "settings", "kubernetes", "node-labels")
		if err != nil {
			return "", err
		}
		for key, value := range labels {
			into[key] = value
		}
	}
	if len(taints) > 0 {
		into, err := table(all, "settings", "kubernetes", "node-taints")
		if err != nil {
			return "", err
		}
		for _, taint := range taints {
			if err := add(into, taint); err != nil {
				return "", err
			}
		}
	}
	var text strings.Builder
	encoder := toml.NewEncoder(&text)
	encoder.Indent = ""
	err = encoder.Encode(all)
	return text.String(), err
}

// add adds a taint to the list of its key.
func add(taints map[string]any, taint corev1.Taint) error {
	list, ok := taints[taint.Key].([]any)
	if !ok && taints[taint.Key] != nil {
		return fmt.Errorf("settings.kubernetes.node-taints.%s in spec.customUserData must be a list", taint.Key)
	}
	word := taint.Value + ":" + string(taint.Effect)
	for _, other := range list {
		if other == word {
			return nil
		}
	}
	taints[taint.Key] = append(list, word)
	return nil
}

// table returns a table, and makes it if it is not there.
func table(all map[string]any, path ...string) (map[string]any, error) {
	for i, name := range path {
		next, ok := all[name].(map[string]any)
		if !ok && all[name] != nil {
			return nil, fmt.Errorf("%s in spec.customUserData must be a table", strings.Join(path[:i+1], "."))
		}
		if !ok {
			next = map[string]any{}
			all[name] = next
		}
		all = next
	}
	return all, nil
}
