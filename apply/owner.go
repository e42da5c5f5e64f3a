package apply

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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
