package simtest

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// templates are where built-in kinds have a pod template.
var templates = map[string][]string{ //nolint:gochecknoglobals // never changed
	"podtemplates":           {"template"},
	"replicationcontrollers": {"spec", "template"},
	"deployments.apps":       {"spec", "template"},
	"replicasets.apps":       {"spec", "template"},
	"statefulsets.apps":      {"spec", "template"},
	"daemonsets.apps":        {"spec", "template"},
	"jobs.batch":             {"spec", "template"},
	"cronjobs.batch":         {"spec", "jobTemplate", "spec", "template"},
}

// specDefaults are the fields of the spec that a real server sets where there are none, in this
// order: one with when is set where the text at that path is the given one.
var specDefaults = map[string][]specDefault{ //nolint:gochecknoglobals // never changed
	"services": {
		{value: map[string]any{"type": "ClusterIP", "sessionAffinity": "None"}},
		{value: map[string]any{"internalTrafficPolicy": "Cluster"}, when: "type", is: "ClusterIP NodePort LoadBalancer"},
		{value: map[string]any{"externalTrafficPolicy": "Cluster"}, when: "type", is: "NodePort LoadBalancer"},
		{value: map[string]any{"allocateLoadBalancerNodePorts": true}, when: "type", is: "LoadBalancer"},
	},
	"deployments.apps": {
		{value: map[string]any{
			"replicas": 1.0, "revisionHistoryLimit": 10.0, "progressDeadlineSeconds": 600.0, "strategy": map[string]any{"type": rolling},
		}},
		{
			value: map[string]any{"strategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}}},
			when:  "strategy.type", is: rolling,
		},
	},
	"replicasets.apps": {{value: map[string]any{"replicas": 1.0}}},
	"statefulsets.apps": {
		{value: map[string]any{
			"replicas": 1.0, "revisionHistoryLimit": 10.0, "podManagementPolicy": "OrderedReady",
			"updateStrategy":                       map[string]any{"type": rolling},
			"persistentVolumeClaimRetentionPolicy": map[string]any{"whenDeleted": "Retain", "whenScaled": "Retain"},
		}},
		{
			value: map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": 0.0}}},
			when:  "updateStrategy.type", is: rolling,
		},
	},
	"daemonsets.apps": {
		{value: map[string]any{"revisionHistoryLimit": 10.0, "updateStrategy": map[string]any{"type": rolling}}},
		{
			value: map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0.0, "maxUnavailable": 1.0}}},
			when:  "updateStrategy.type", is: rolling,
		},
	},
	"jobs.batch": {{value: map[string]any{
		"backoffLimit": 6.0, "suspend": false, "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed",
		"manualSelector": false,
	}}},
	"persistentvolumeclaims": {{value: map[string]any{"volumeMode": "Filesystem"}}},
	"pods":                   {{value: map[string]any{"enableServiceLinks": true}}},
}

const rolling = "RollingUpdate"

// specDefault is a part of a spec that is set where when is one of the words of is. Empty: always.
type specDefault struct {
	value    map[string]any
	when, is string
}

// podDefaults and containerDefaults are the defaults of each pod, in a template or not.
var (
	podDefaults = map[string]any{ //nolint:gochecknoglobals // never changed
		"restartPolicy": "Always", "terminationGracePeriodSeconds": 30.0, "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
		"securityContext": map[string]any{},
	}
	containerDefaults = map[string]any{ //nolint:gochecknoglobals // never changed
		"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": map[string]any{},
	}
	portDefaults = map[string]any{"protocol": "TCP"} //nolint:gochecknoglobals // never changed
)

// complete makes an object of a built-in kind what a real server decodes it to: with the defaults
// of its fields, and the stringData of a Secret in its data. live is nil if it does not exist yet.
func (k Kind) complete(live, o Object) {
	if k.custom() {
		return
	}
	name := k.resource()
	if name == "secrets" {
		o.mergeStrings()
	}
	spec, ok := o["spec"].(map[string]any)
	if ok || name == "pods" {
		for _, d := range specDefaults[name] {
			if d.when == "" || strings.Contains(d.is, Object(spec).text(strings.Split(d.when, ".")...)) {
				o["spec"] = fill(spec, d.value)
				spec, _ = o["spec"].(map[string]any)
			}
		}
	}
	switch template := templates[name]; {
	case name == "pods":
		completePod(spec)
	case name == "services" && ok:
		completeService(live, o)
	case template != nil && o.Field(template...) != nil:
		path := append(slices.Clone(template), "spec")
		inner, _ := o.Field(path...).(map[string]any)
		inner = fill(inner, nil)
		o.Set(inner, path...)
		completePod(inner)
		if name == "jobs.batch" {
			completeJob(live, o)
		}
	}
}

// completeJob sets how often a Job runs and, if it is new, what selects its pods.
func completeJob(live, o Object) {
	spec := o["spec"].(map[string]any)
	if spec["parallelism"] == nil {
		fill(spec, map[string]any{"completions": 1.0, "parallelism": 1.0})
	}
	if live != nil || spec["manualSelector"] == true {
		return
	}
	const prefix = "batch.kubernetes.io/"
	o.Set(o.UID(), "spec", "selector", "matchLabels", prefix+"controller-uid")
	for _, each := range []string{"", prefix} {
		o.Set(o.UID(), "spec", "template", "metadata", "labels", each+"controller-uid")
		o.Set(o.Name(), "spec", "template", "metadata", "labels", each+"job-name")
	}
}

// mergeStrings moves stringData to data.
func (o Object) mergeStrings() {
	strings, _ := o["stringData"].(map[string]any)
	for name, value := range strings {
		o.Set(base64.StdEncoding.EncodeToString(fmt.Append(nil, value)), "data", name)
	}
	delete(o, "stringData")
	if empty(o["type"]) || o["type"] == "" {
		o["type"] = "Opaque"
	}
}

// fill returns a map with the values of another that it lacks.
func fill(m, missing map[string]any) map[string]any {
	if m == nil {
		m = map[string]any{}
	}
	for name, value := range missing {
		inner, deep := value.(map[string]any)
		switch now := m[name].(type) {
		case nil:
			m[name] = cloneValue(value)
		case map[string]any:
			if deep {
				m[name] = fill(now, inner)
			}
		}
	}
	return m
}

// completePod sets the defaults in the spec of a pod.
func completePod(spec map[string]any) {
	fill(spec, podDefaults)
	for _, field := range []string{"initContainers", "containers"} {
		for _, c := range Object(spec).maps(field) {
			fill(c, containerDefaults)
			if c.text("imagePullPolicy") == "" {
				c["imagePullPolicy"] = pullPolicy(c.text("image"))
			}
			for _, port := range c.maps("ports") {
				fill(port, portDefaults)
			}
		}
	}
}

// pullPolicy is Always for an image whose tag may move.
func pullPolicy(image string) string {
	name, _, digested := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	if _, tag, _ := strings.Cut(name, ":"); tag == "latest" || tag == "" && !digested && image != "" {
		return "Always"
	}
	return "IfNotPresent"
}

// completeService sets the defaults of the ports of a Service, and keeps what the server has
// given it.
func completeService(live, o Object) {
	for _, port := range o.maps("spec", "ports") {
		fill(port, portDefaults)
		if port["targetPort"] == nil || port["targetPort"] == "" || port["targetPort"] == 0.0 {
			port["targetPort"] = port["port"]
		}
	}
	if ip := o.text("spec", "clusterIP"); ip != "" && same(o.Field("spec", "clusterIPs"), live.Field("spec", "clusterIPs")) {
		o.Set([]any{ip}, "spec", "clusterIPs")
	}
	for _, field := range allocated {
		switch external := o.text("spec", "type") == "ExternalName"; {
		case external && same(o.Field("spec", field), live.Field("spec", field)):
			o.drop("spec", field)
		case !external && (empty(o.Field("spec", field)) || o.Field("spec", field) == ""):
			o.keep(live, "spec", field)
		}
	}
}

// allocated are the fields of a Service that the server fills.
var allocated = []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} //nolint:gochecknoglobals // never changed

// allocate gives a Service without an address one that is computed from its name, so that it is
// the same in a world with the same Services.
func (k Kind) allocate(o Object) {
	spec, ok := o["spec"].(map[string]any)
	if k.resource() != "services" || o.text("spec", "type") == "ExternalName" || !ok {
		return
	}
	if o.text("spec", "clusterIP") == "" {
		sum := fnv.New32a()
		_, _ = fmt.Fprint(sum, o.Namespace(), "/", o.Name()) // a hash takes everything
		o.Set(fmt.Sprintf("10.%d.%d.%d", 96+sum.Sum32()>>16%16, sum.Sum32()>>8%256, 1+sum.Sum32()%254), "spec", "clusterIP")
	}
	if o.text("spec", "clusterIP") == "None" && empty(o.Field("spec", "selector")) {
		fill(spec, map[string]any{"ipFamilies": []any{"IPv4", "IPv6"}, "ipFamilyPolicy": "RequireDualStack"})
	}
	fill(spec, map[string]any{
		"clusterIPs": []any{o.text("spec", "clusterIP")}, "ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack",
	})
}

// maps returns the maps of a list.
func (o Object) maps(path ...string) []Object {
	var all []Object
	for _, each := range o.list(path...) {
		if m, ok := each.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}
