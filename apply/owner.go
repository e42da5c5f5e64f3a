//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	// Labels are put on every object and select what [Live] watches. They distinguish
	// our objects from others; at least one is required. A label that names this very
	// owner, such as a cluster ID, separates two owners with one Manager.
	Labels map[string]string
	// Domain is the prefix of the annotations <Domain>/desired-hash and
	// <Domain>/depends-on, a DNS subdomain. Required.
	Domain string
	// PartLabel is the key of a label that divides the owner's objects into parts, such
	// as one for each parent object, with its UID as the value. Each set is then one
	// part ([SetOptions.Part]), and is pruned by itself. Default empty: all objects of
	// the owner are one set.
	PartLabel string
	// Supersedes are earlier managers of the owner's objects. An object that they made is
	// adopted if the set states it, whatever [Applier.Adoption] says: all its fields outside
	// of the metadata are theirs, and no other object controls it. Their fields become ours
	// when an object is applied, such as kubectl-client-side-apply for objects of "kubectl
	// apply", or the name that Manager had before. The first apply then removes the fields
	// that they stated and the set does not. For "kubectl apply" these are the fields in its
	// annotation last-applied-configuration; defaults that the server has added stay. An
	// object that carries our labels and that such a manager has applied (server-side) is
	// pruned as one of ours. Default none: their fields stay as they are, and their objects
	// are not pruned.
	Supersedes []string
	// ApplySet, if set, names the parent object of everything we apply (KEP-3659), by
	// which kubectl and other tools see what belongs together. Members carry its ID as
	// a label. It lists the kinds of all members, which our own next start reads. It is
	// a ConfigMap or Secret, which is made if missing, or any object that the set
	// states. It is never pruned while it is named here. If it is missing at a start, the
	// kinds are found by a look at every kind of the server ([Live.Discovery]).
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
		return fmt.Errorf("apply: Owner.Manager: is %q, of %d bytes, must have 1 to 128", o.Manager, len(o.Manager))
	}
	if len(o.Labels) == 0 {
		return errors.New("apply: Owner.Labels: is empty, must have at least one label that only our objects have")
	}
	for key, v := range o.Labels {
		for _, problem := range validation.IsQualifiedName(key) {
			return fmt.Errorf("apply: Owner.Labels: has the key %q: %s", key, problem)
		}
		for _, problem := range validation.IsValidLabelValue(v) {
			return fmt.Errorf("apply: Owner.Labels: has the value %q of %s: %s", v, key, problem)
		}
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.Domain) {
		return fmt.Errorf("apply: Owner.Domain: is %q: %s", o.Domain, problem)
	}
	if o.PartLabel != "" {
		for _, problem := range validation.IsQualifiedName(o.PartLabel) {
			return fmt.Errorf("apply: Owner.PartLabel: is %q: %s", o.PartLabel, problem)
		}
		if _, ok := o.Labels[o.PartLabel]; ok {
			return fmt.Errorf("apply: Owner.PartLabel: is %q, must not be a key of Owner.Labels", o.PartLabel)
		}
	}
	if at := slices.Index(o.Supersedes, ""); at >= 0 {
		return fmt.Errorf("apply: Owner.Supersedes[%d]: is empty, must be a field manager", at)
	}
	if slices.Contains(o.Supersedes, o.Manager) {
		return fmt.Errorf("apply: Owner.Supersedes: has %q, must not have Owner.Manager", o.Manager)
	}
	if o.ApplySet != (ID{}) && (o.ApplySet.Kind == "" || o.ApplySet.Name == "") {
		return fmt.Errorf("apply: Owner.ApplySet: is %q, must be a kind and a name", o.ApplySet)
	}
	if set := o.ApplySet; set.Group == "" && (set.Kind == "ConfigMap" || set.Kind == "Secret") && set.Namespace == "" {
		return fmt.Errorf("apply: Owner.ApplySet: is %q, must have a namespace", set)
	}
	return nil
}

func (o Owner) clone() Owner {
	o.Labels, o.Supersedes = maps.Clone(o.Labels), slices.Clone(o.Supersedes)
	return o
}

// identity returns the labels and names by which the owner's objects are recognised.
func (o Owner) identity() *identity.Identity {
	return &identity.Identity{
		Manager: o.Manager, Labels: o.Labels, PartLabel: o.PartLabel, Supersedes: o.Supersedes,
		HashAnnotation: o.hashAnnotation(), DependsOnAnnotation: o.dependsOnAnnotation(),
	}
}

// hashAnnotation is the annotation that holds the content hash of the desired
// object, by which a restarted program recognises its last apply.
func (o Owner) hashAnnotation() string { return o.Domain + "/desired-hash" }

// dependsOnAnnotation is the annotation that names what an object depends on.
func (o Owner) dependsOnAnnotation() string { return o.Domain + "/depends-on" }

// dependencies reads the annotation of an object, a comma-separated list of IDs.
func (o Owner) dependencies(annotations map[string]string) ([]ID, error) {
	stated, ok := annotations[o.dependsOnAnnotation()]
	if !ok {
		return nil, nil
	}
	var ids []ID
	for part := range strings.SplitSeq(stated, ",") {
		id, err := ParseID(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("metadata.annotations: %s: %w", o.dependsOnAnnotation(), err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
