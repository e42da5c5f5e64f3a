//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
)

// Owner is the identity under which a program applies objects, and by which it
// recognises them.
type Owner struct {
	// Manager is the field manager of every write. Required, at most 128
	// bytes. Two programs, or one program's instances for two different desired
	// states, must not share it together with the Labels.
	Manager string
	// Labels are put on every object and select what [Live] watches. They tell our
	// objects from others': at least one is required. One that names this very
	// owner (a cluster id, say) keeps two owners with one Manager apart.
	Labels map[string]string
	// Domain is the prefix of the annotations <Domain>/desired-hash and
	// <Domain>/depends-on, a DNS subdomain. Required.
	Domain string
	// PartLabel is the key of a label that divides what the owner has into parts,
	// one for each parent object, say, whose UID is its value. Each set is one part
	// then ([SetOptions.Part]), and is pruned by itself. Default empty: all that the
	// owner has is one set.
	PartLabel string
	// Supersedes are field managers whose updates become ours when an object is
	// applied, such as kubectl-client-side-apply for what "kubectl apply" has made.
	// What they stated and the set does not is removed by the first apply then. Of a
	// "kubectl apply" that is what its annotation last-applied-configuration states;
	// the defaults that the server has added stay. Default none: their fields stay
	// as they are.
	Supersedes []string
	// ApplySet, if set, names the object that stands for everything we apply, so
	// that kubectl and other tools see what belongs together (KEP-3659): members
	// carry its ID as a label, and it carries the kinds of all members, also for
	// our own next start. It is a ConfigMap or Secret, which is then made, or
	// any object that the set states. It is never pruned while it is named here.
	ApplySet ID
}

// equal reports whether two owners are one.
func (o Owner) equal(other Owner) bool {
	return o.Manager == other.Manager && o.Domain == other.Domain && o.PartLabel == other.PartLabel && o.ApplySet == other.ApplySet &&
		maps.Equal(o.Labels, other.Labels) && slices.Equal(o.Supersedes, other.Supersedes)
}

// validate returns an error that names the field.
func (o Owner) validate() error {
	if o.Manager == "" || len(o.Manager) > 128 {
		return fmt.Errorf("apply: Owner.Manager is %q, of %d bytes; want 1 to 128", o.Manager, len(o.Manager))
	}
	if len(o.Labels) == 0 {
		return errors.New("apply: Owner.Labels is empty; want at least one that tells our objects from others'")
	}
	for key, v := range o.Labels {
		for _, problem := range validation.IsQualifiedName(key) {
			return fmt.Errorf("apply: Owner.Labels has the key %q: %s", key, problem)
		}
		for _, problem := range validation.IsValidLabelValue(v) {
			return fmt.Errorf("apply: Owner.Labels has the value %q of %s: %s", v, key, problem)
		}
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.Domain) {
		return fmt.Errorf("apply: Owner.Domain is %q: %s", o.Domain, problem)
	}
	if o.PartLabel != "" {
		for _, problem := range validation.IsQualifiedName(o.PartLabel) {
			return fmt.Errorf("apply: Owner.PartLabel is %q: %s", o.PartLabel, problem)
		}
		if _, ok := o.Labels[o.PartLabel]; ok {
			return fmt.Errorf("apply: Owner.PartLabel is %q, which is a key of Owner.Labels; want one of its own", o.PartLabel)
		}
	}
	if slices.Contains(o.Supersedes, o.Manager) {
		return fmt.Errorf("apply: Owner.Supersedes has %q, which is Owner.Manager; want others", o.Manager)
	}
	if o.ApplySet != (ID{}) && (o.ApplySet.Kind == "" || o.ApplySet.Name == "") {
		return fmt.Errorf("apply: Owner.ApplySet is %q; want a kind and a name", o.ApplySet)
	}
	return nil
}

func (o Owner) clone() Owner {
	o.Labels, o.Supersedes = maps.Clone(o.Labels), slices.Clone(o.Supersedes)
	return o
}

// identity returns what recognises the owner's objects.
func (o Owner) identity() *identity.Identity {
	return &identity.Identity{
		Manager: o.Manager, Labels: o.Labels, PartLabel: o.PartLabel, Supersedes: o.Supersedes,
		HashAnnotation: o.hashAnnotation(), DependsOnAnnotation: o.dependsOnAnnotation(),
	}
}

// hashAnnotation is the annotation that holds the content hash of the desired
// object, so that a restarted program knows what was applied.
func (o Owner) hashAnnotation() string { return o.Domain + "/desired-hash" }

// dependsOnAnnotation is the annotation that names what an object depends on.
func (o Owner) dependsOnAnnotation() string { return o.Domain + "/depends-on" }
