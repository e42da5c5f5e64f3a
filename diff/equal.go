package diff

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// equal compares values of which an apply would replace one by the other:
// numbers and quantities by value.
func (w *walker) equal(at fieldpath.Path, desired, live any) bool {
	switch d := desired.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range l {
			if _, stated := d[name]; !stated && (!w.builtin || !defaulted(at, name, v)) {
				return false
			}
		}
		for name, v := range d {
			have, ok := l[name]
			if !ok {
				if !w.builtin || !empty(v) {
					return false
				}
				continue
			}
			if !w.equal(append(at[:len(at):len(at)], fieldpath.PathElement{FieldName: &name}), v, have) {
				return false
			}
		}
		return true
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(d) {
			return false
		}
		for i := range d {
			if !w.equal(append(at[:len(at):len(at)], fieldpath.PathElement{Index: &i}), d[i], l[i]) {
				return false
			}
		}
		return true
	default:
		return value.Equals(value.NewValueInterface(desired), value.NewValueInterface(live)) ||
			w.builtin && quantityAt(at) && sameQuantity(desired, live)
	}
}

// defaulted reports whether a field is one that the server adds to a value of a
// built-in kind that is owned as a whole, with the value that it adds.
func defaulted(at fieldpath.Path, name string, v any) bool {
	around := ""
	for _, element := range at {
		if element.FieldName != nil {
			around = *element.FieldName
		}
	}
	switch around + "." + name {
	case "fieldRef.apiVersion":
		return v == "v1"
	case "resourceFieldRef.divisor":
		return sameQuantity(v, "0")
	case "ports.protocol":
		return v == "TCP"
	case "serviceAccountToken.expirationSeconds":
		return value.Equals(value.NewValueInterface(v), value.NewValueInterface(int64(3600)))
	}
	return false
}

// empty reports whether a server may keep no trace of a value.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case int64:
		return v == 0
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// sameQuantity reports whether two values are one quantity, written in two ways.
func sameQuantity(a, b any) bool {
	x, ok := quantity(a)
	if !ok {
		return false
	}
	y, ok := quantity(b)
	return ok && x.Cmp(y) == 0
}

func quantity(v any) (resource.Quantity, bool) {
	text, ok := v.(string)
	if !ok {
		text = string(valueOf(v))
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// quantityAt reports whether the field at a path of a built-in kind is a
// quantity, which the server writes in its canonical form. Elsewhere (in a
// ConfigMap, an annotation, the environment of a container) "0.1" and "100m"
// are two values.
func quantityAt(at fieldpath.Path) bool {
	names := make([]string, 0, 2) // the last two
	for i := len(at) - 1; i >= 0 && len(names) < 2; i-- {
		if at[i].FieldName == nil {
			break
		}
		names = append(names, *at[i].FieldName)
	}
	if len(names) > 0 {
		switch names[0] {
		case "sizeLimit", "divisor", "averageValue", "maximumVolumeSize", "minimumVolumeSize":
			return true
		case "value":
			return len(names) > 1 && names[1] == "target"
		}
	}
	if len(names) < 2 {
		return false
	}
	switch names[1] {
	case "requests", "limits", "capacity", "allocatable", "hard", "used", "podFixed", "allocatedResources",
		"default", "defaultRequest", "max", "min", "maxLimitRequestRatio":
		return true
	}
	return false
}

// builtin reports whether a kind is one of Kubernetes itself. A custom resource
// may be in a group below k8s.io as well (gateway.networking.k8s.io).
func builtin(object map[string]any) bool {
	apiVersion, _ := object["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || !strings.Contains(gv.Group, ".") {
		return err == nil
	}
	switch name, ok := strings.CutSuffix(gv.Group, ".k8s.io"); name {
	case "admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization", "certificates",
		"coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver", "networking", "node",
		"rbac.authorization", "resource", "scheduling", "storage", "storagemigration":
		return ok
	}
	return false
}
