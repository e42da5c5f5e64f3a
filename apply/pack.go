package apply

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// uid is the UID of an object in 16 bytes, if it has the form that servers give,
// and otherwise as it is with a mark before it. Equal UIDs are equal as uid.
type uid string

const packedUID = 16

func packUID(text types.UID) uid {
	digits := strings.ReplaceAll(string(text), "-", "")
	raw, err := hex.DecodeString(digits)
	if err == nil && len(raw) == packedUID && uid(raw).String() == string(text) {
		return uid(raw)
	}
	if len(text)+1 == packedUID {
		return uid("~~" + text)
	}
	return uid("~" + text)
}

// String returns the UID as the server writes it.
func (u uid) String() string {
	if len(u) != packedUID {
		return strings.TrimLeft(string(u), "~")
	}
	var text [36]byte
	at := 0
	for i := range packedUID {
		switch i {
		case 4, 6, 8, 10:
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], []byte(u[i:i+1]))
		at += 2
	}
	return string(text[:])
}

// labelSet is the labels of an object beside the owner's, which all have. Objects
// share their keys. Neither keys nor values contain a comma.
type labelSet struct {
	keys   unique.Handle[string]
	values string
}

func packLabels(have, owners map[string]string) labelSet {
	var keys, values []string
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if v := have[key]; owners[key] != v {
			keys, values = append(keys, key), append(values, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(owners)) {
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

// nameOf returns the name of an object; objects of a namespace share its name.
func nameOf(namespace, object string) name {
	return name{unique.Make(namespace).Value(), object}
}
