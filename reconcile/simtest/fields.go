package simtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fieldError is what a real server finds wrong about one field.
type fieldError struct{ field, reason, message string }

func badField(field string, value any, why string) *fieldError {
	text, _ := json.Marshal(value) // of what JSON has decoded: it cannot fail
	return &fieldError{field, "FieldValueInvalid", fmt.Sprintf("Invalid value: %s: %s", text, why)}
}

func requiredField(field string) *fieldError {
	return &fieldError{field, "FieldValueRequired", "Required value"}
}

// invalidField is the answer to a write of an object with such a field.
func invalidField(c call, e *fieldError) *answer {
	a := invalid(c, e.field+": "+e.message)
	a.body.Set([]any{map[string]any{"reason": e.reason, "message": e.message, "field": e.field}}, "details", "causes")
	return a
}

// immutable is a field that may not change.
type immutable struct {
	path string
	// but are fields in it that may.
	but []string
	// unless reports whether it may change after all. Nil: never.
	unless func(live, next Object) bool
	// why is what a real server says instead of that the field is immutable, forbids what it says if
	// it does not call the value invalid, and field is of which.
	field, why, forbids string
}

const (
	ofStatefulSet = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', " +
		"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
	ofClaim = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
	ofData  = "field is immutable when `immutable` is set"
)

// immutables are the fields of built-in kinds that may not change.
var immutables = map[string][]immutable{ //nolint:gochecknoglobals // never changed
	"deployments.apps": {{path: "spec.selector"}},
	"replicasets.apps": {{path: "spec.selector"}},
	"daemonsets.apps":  {{path: "spec.selector"}},
	"statefulsets.apps": {
		{path: "spec.selector", field: "spec", forbids: ofStatefulSet},
		{path: "spec.serviceName", field: "spec", forbids: ofStatefulSet},
		{path: "spec.podManagementPolicy", field: "spec", forbids: ofStatefulSet},
	},
	"jobs.batch": {{path: "spec.selector"}, {path: "spec.template", unless: suspended}},
	"configmaps": {
		{path: "immutable", unless: mutable, forbids: ofData},
		{path: "data", unless: mutable, forbids: ofData},
		{path: "binaryData", unless: mutable, forbids: ofData},
	},
	"secrets": {
		{path: "type"}, {path: "immutable", unless: mutable, forbids: ofData}, {path: "data", unless: mutable, forbids: ofData},
	},
	"services": {{path: "spec.clusterIPs", unless: external, field: "spec.clusterIPs[0]", why: "may not change once set"}},
	"persistentvolumeclaims": {
		{path: "spec", but: []string{"resources", "volumeAttributesClassName"}, unless: binds, forbids: ofClaim},
	},
	"rolebindings.rbac.authorization.k8s.io":        {{path: "roleRef", why: "cannot change roleRef"}},
	"clusterrolebindings.rbac.authorization.k8s.io": {{path: "roleRef", why: "cannot change roleRef"}},
}

func mutable(live, _ Object) bool { return live["immutable"] != true }

// suspended reports whether a Job does not run: the server takes changes of where its pods go.
func suspended(live, _ Object) bool { return live.Field("spec", "suspend") == true }

// external reports whether a Service had or gets no address.
func external(live, next Object) bool {
	return live.text("spec", "type") == "ExternalName" || next.text("spec", "type") == "ExternalName"
}

// binds reports whether a claim gets its volume, and no other change.
func binds(live, next Object) bool {
	if live.text("spec", "volumeName") != "" {
		return false
	}
	bound := clone(next)
	bound.keep(live, "spec", "volumeName")
	return reflect.DeepEqual(pruned(live["spec"]), pruned(bound["spec"]))
}

// frozen returns what a write changes and may not.
func (k Kind) frozen(live, next Object) *fieldError {
	for _, f := range immutables[k.resource()] {
		path := strings.Split(f.path, ".")
		before, after := live.Field(path...), next.Field(path...)
		if reflect.DeepEqual(pruned(without(before, f.but)), pruned(without(after, f.but))) || f.unless != nil && f.unless(live, next) {
			continue
		}
		field := cmp.Or(f.field, f.path)
		if f.forbids != "" {
			return &fieldError{field, "FieldValueForbidden", "Forbidden: " + f.forbids}
		}
		return badField(field, after, cmp.Or(f.why, "field is immutable"))
	}
	return nil
}

// without returns a map without some of its fields.
func without(value any, fields []string) any {
	m, ok := value.(map[string]any)
	if !ok || len(fields) == 0 {
		return value
	}
	left := map[string]any{}
	for name, value := range m {
		if !slices.Contains(fields, name) {
			left[name] = value
		}
	}
	return left
}

// pruned returns a value without the empty ones in it, which a real server does not tell from none.
func pruned(value any) any {
	switch v := value.(type) {
	case map[string]any:
		left := map[string]any{}
		for name, each := range v {
			if each = pruned(each); !empty(each) {
				left[name] = each
			}
		}
		return left
	case []any:
		all := make([]any, len(v))
		for i, each := range v {
			all[i] = pruned(each)
		}
		return all
	}
	return value
}

// lacks returns what a real server requires of an object of a built-in kind, and it lacks.
func (k Kind) lacks(o Object) *fieldError {
	name := k.resource()
	switch spec := (Object{"spec": o["spec"]}); {
	case k.custom():
		return nil
	case name == "services":
		needless := spec.text("spec", "type") == "ExternalName" || spec.text("spec", "clusterIP") == "None"
		if len(spec.list("spec", "ports")) == 0 && !needless {
			return requiredField("spec.ports")
		}
		return nil
	case name == "jobs.batch" && empty(spec.Field("spec", "selector")):
		return requiredField("spec.selector")
	case k.Group == "apps" && templates[name] != nil:
		if err := unselected(spec); err != nil {
			return err
		}
	}
	template := templates[name]
	if template == nil || k.Group == "" {
		return nil
	}
	pod := append(slices.Clone(template), "spec")
	if policy := append(slices.Clone(pod), "restartPolicy"); k.Group == "batch" && o.text(policy...) == "Always" {
		return &fieldError{strings.Join(policy, "."), "FieldValueRequired", `Required value: valid values: "OnFailure", "Never"`}
	}
	return containerless(o, pod)
}

// unselected returns what is wrong about the selector of a workload.
func unselected(o Object) *fieldError {
	if empty(o.Field("spec", "selector")) {
		return requiredField("spec.selector")
	}
	labels := o.Field("spec", "template", "metadata", "labels")
	terms, err := labelTerms(selectorText(o))
	if err == nil && (selector{labels: terms}).matches(key{}, Object{"metadata": map[string]any{"labels": labels}}) {
		return nil
	}
	return badField("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
}

// containerless returns what the containers of a pod template lack.
func containerless(o Object, path []string) *fieldError {
	field := strings.Join(append(path, "containers"), ".")
	containers := o.maps(append(path, "containers")...)
	if len(containers) == 0 {
		return requiredField(field)
	}
	for i, c := range containers {
		for _, name := range []string{"name", "image"} {
			if c.text(name) == "" {
				return requiredField(fmt.Sprintf("%s[%d].%s", field, i, name))
			}
		}
	}
	return nil
}
