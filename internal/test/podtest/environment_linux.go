package podtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// apiServer is the name of the API server in pods: one that its certificate has.
const apiServer = "kubernetes.default.svc"

// environment returns the variables of a container as NAME=value, each once.
func (p *pod) environment(ctx context.Context, c corev1.Container) ([]string, error) {
	all := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": p.object.Name,
		"KUBERNETES_SERVICE_HOST": apiServer, "KUBERNETES_SERVICE_PORT": strconv.Itoa(p.node.port),
	}
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		var err error
		if from.SecretRef != nil {
			data, err = p.data(ctx, "secrets", from.SecretRef.Name, from.SecretRef.Optional)
		} else if from.ConfigMapRef != nil {
			data, err = p.data(ctx, "configmaps", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, content := range data {
			all[from.Prefix+key] = string(content)
		}
	}
	for _, variable := range c.Env {
		text, found, err := p.variable(ctx, variable, all)
		if err != nil {
			return nil, err
		}
		if found {
			all[variable.Name] = text
		}
	}
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env, nil
}

func (p *pod) variable(ctx context.Context, v corev1.EnvVar, all map[string]string) (text string, found bool, err error) {
	if v.ValueFrom == nil {
		return expand(v.Value, func(name string) (string, bool) { text, found := all[name]; return text, found }), true, nil
	}
	var data map[string][]byte
	var key string
	var optional *bool
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		text, err = p.field(from.FieldRef.FieldPath)
		return text, true, err
	case from.SecretKeyRef != nil:
		key, optional = from.SecretKeyRef.Key, from.SecretKeyRef.Optional
		data, err = p.data(ctx, "secrets", from.SecretKeyRef.Name, optional)
	case from.ConfigMapKeyRef != nil:
		key, optional = from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional
		data, err = p.data(ctx, "configmaps", from.ConfigMapKeyRef.Name, optional)
	default:
		err = fmt.Errorf("env %s: its source cannot be had here", v.Name)
	}
	if err != nil {
		return "", false, err
	}
	content, found := data[key]
	if !found && !value(optional, false) {
		return "", false, fmt.Errorf("couldn't find key %s for env %s", key, v.Name)
	}
	return string(content), found, nil
}

// field returns a field of the pod.
func (p *pod) field(path string) (string, error) {
	o := p.object
	if name, key, found := strings.Cut(path, "['"); found {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return o.Labels[key], nil
		case "metadata.annotations":
			return o.Annotations[key], nil
		}
	}
	text, found := map[string]string{
		"metadata.name": o.Name, "metadata.namespace": o.Namespace, "metadata.uid": string(o.UID), "spec.nodeName": o.Spec.NodeName,
		"spec.serviceAccountName": o.Spec.ServiceAccountName, "status.podIP": p.link.address.String(), "status.hostIP": p.node.Address(),
	}[path]
	if !found {
		return "", fmt.Errorf("field %s cannot be had here", path)
	}
	return text, nil
}

// expandAll replaces the variables in words.
func expandAll(words, env []string) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = expand(word, func(name string) (string, bool) {
			for _, variable := range env {
				if text, found := strings.CutPrefix(variable, name+"="); found {
					return text, true
				}
			}
			return "", false
		})
	}
	return all
}

// expand replaces $(NAME) by the variable of that name, if there is one, and $$ by $.
func expand(text string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for text != "" {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			break
		}
		text = rest
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && closed:
			value, known := lookup(name)
			if !known {
				value = "$(" + name + ")"
			}
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}
