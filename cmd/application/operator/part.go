package operator

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// part is one kind of dependency that an Application has beside its workload.
type part struct {
	// outside is what it has outside of the cluster. Its name is the name of the step, such as
	// database.
	outside outside.Part
	// condition is the type of its condition.
	condition string
	// note is what the condition says beside being true.
	note string
	// configs returns what the pods read. It is called when the part is usable.
	configs func(context.Context) ([]*unstructured.Unstructured, error)
	// child is its object in the cluster, removed after the external objects.
	child apply.ID
}

// inventory is what the pass records in a status.
func (p *pass) inventory(s *v1alpha1.ApplicationStatus) (found []v1alpha1.External) {
	for _, t := range p.outside.Merge(things(s.External...)) {
		found = append(found, v1alpha1.External{
			Kind: v1alpha1.ExternalKind(t.Kind), ID: t.ID, Policy: v1alpha1.DeletionPolicy(t.Policy), Made: t.Made,
		})
	}
	return found
}

// things are external objects as a pass has them.
func things(list ...v1alpha1.External) (found []outside.Thing) {
	for _, e := range list {
		found = append(found, outside.Thing{Kind: string(e.Kind), ID: e.ID, Policy: string(e.Policy), Made: e.Made})
	}
	return found
}

// retained reports whether something is left when it is no longer wanted.
func retained(t outside.Thing) bool { return t.Policy == string(v1alpha1.Retain) }

// unset is the error of a service that the operator has no address of.
func unset(what, variables string) error {
	return fmt.Errorf("%s: %w: the operator is started without %s; set it, or turn %s off", what, external.ErrUnset, variables, what)
}
