package view

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
)

// labelSet is the labels of an object beside the owner's, which all objects have,
// and the part label, by which objects are indexed. Objects share their keys.
// Neither keys nor values contain a comma.
type labelSet struct {
	keys   unique.Handle[string]
	values string
}

func packLabels(have map[string]string, id *identity.Identity) labelSet {
	var keys, values []string
	for _, key := range slices.Sorted(maps.Keys(have)) {
		v := have[key]
		if own, ok := id.Labels[key]; ok && own == v || key == id.PartLabel {
			continue
		}
		keys, values = append(keys, key), append(values, v)
	}
	for _, key := range slices.Sorted(maps.Keys(id.Labels)) {
		if _, ok := have[key]; !ok {
			keys, values = append(keys, key), append(values, "")
		}
	}
	if len(keys) == 0 {
		return labelSet{}
	}
	return labelSet{unique.Make(strings.Join(keys, ",")), strings.Join(values, ",")}
}

// value returns the value of a label, "" when the object lacks it.
func (l labelSet) value(key string, owners map[string]string) string {
	if l.keys == (unique.Handle[string]{}) {
		return owners[key]
	}
	keys, values := l.keys.Value(), l.values
	for more := true; more; {
		var k, v string
		k, keys, more = strings.Cut(keys, ",")
		v, values, _ = strings.Cut(values, ",")
		if k == key {
			return v
		}
	}
	return owners[key]
}
