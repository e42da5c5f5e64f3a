package apply

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Owner is the identity under which a program applies objects, and by which it
// knows them again.
type Owner struct {
	// Manager is the field manager of every write. Required, at most 128
	// bytes. Two programs, or one program's instances for two different desired
	// states, must not share it together with the Labels.
	Manager string
	// Labels are put on every object, select what [Live] watches, and tell our
	// objects from others': at least one is required. One that names this very
	// owner (a cluster id, say) keeps two owners with one Manager apart.
	Labels map[string]string
	// Domain is the prefix of the annotation <Domain>/desired-hash, a DNS
	// subdomain. Required.
	Domain string
	// ApplySet, if set, names the object that stands for everything we apply, so
	// that kubectl and other tools see what belongs together (KEP-3659): members
	// carry its ID as a label. It is a ConfigMap or Secret, which is then made, or
	// any object that the set states. It is never pruned while it is named here.
	ApplySet ID
}

// equal reports whether two owners are one.
func (o Owner) equal(other Owner) bool {
	return o.Manager == other.Manager && o.Domain == other.Domain && o.ApplySet == other.ApplySet && maps.Equal(o.Labels, other.Labels)
}

// validate returns an error that names the field.
func (o Owner) validate() error {
	if o.Manager == "" || len(o.Manager) > 128 {
		return fmt.Errorf("apply: Owner.Manager: %q has %d bytes; want 1 to 128", o.Manager, len(o.Manager))
	}
	if len(o.Labels) == 0 {
		return fmt.Errorf("apply: Owner.Labels: none; want at least one that tells our objects from others'")
	}
	for key, v := range o.Labels {
		for _, problem := range validation.IsQualifiedName(key) {
			return fmt.Errorf("apply: Owner.Labels: key %q: %s", key, problem)
		}
		for _, problem := range validation.IsValidLabelValue(v) {
			return fmt.Errorf("apply: Owner.Labels: value %q of %s: %s", v, key, problem)
		}
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.Domain) {
		return fmt.Errorf("apply: Owner.Domain: %q: %s", o.Domain, problem)
	}
	if o.ApplySet != (ID{}) && (o.ApplySet.Kind == "" || o.ApplySet.Name == "") {
		return fmt.Errorf("apply: Owner.ApplySet: %q: want a kind and a name", o.ApplySet)
	}
	return nil
}

func (o Owner) clone() Owner {
	o.Labels = maps.Clone(o.Labels)
	return o
}

// selector selects the objects that carry all the labels.
func (o Owner) selector() string {
	return labels.SelectorFromSet(o.Labels).String()
}

// hashAnnotation is the annotation that holds the content hash of the desired
// object, so that a restarted program knows what was applied.
func (o Owner) hashAnnotation() string {
	return o.Domain + "/desired-hash"
}

// standing says what the labels of an object tell about its owner.
type standing int

const (
	unlabelled standing = iota // it lacks one of our labels
	labelled                   // it carries all of them
	others                     // it carries one of them with another value
)

func (o Owner) standing(have map[string]string) standing {
	found := labelled
	for key, want := range o.Labels {
		switch v, ok := have[key]; {
		case !ok:
			found = unlabelled
		case v != want:
			return others
		}
	}
	return found
}

// digest returns the digest of what our writes own of an object, be they applies
// or, in upsert mode, updates. Where the server keeps no managedFields it is one
// of the object's version, which any change changes.
func (o *Owner) digest(m metav1.Object) diff.Sum {
	entries := m.GetManagedFields()
	if len(entries) == 0 {
		return sum(string(m.GetUID()), m.GetResourceVersion())
	}
	applied, _ := diff.Digest(m, o.Manager)
	for i := range entries {
		e := &entries[i]
		if e.Manager == o.Manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil {
			return sum(applied.String(), fmt.Sprint(e.Time), string(e.FieldsV1.Raw))
		}
	}
	return applied
}

// wrote reports whether fields of the object are ours.
func (o *Owner) wrote(m metav1.Object) bool {
	return len(m.GetManagedFields()) > 0 && o.digest(m) != diff.Sum{}
}

// sum hashes parts so that no two lists of them collide by joining.
func sum(parts ...string) diff.Sum {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return diff.Sum(h.Sum(nil)[:len(diff.Sum{})])
}
