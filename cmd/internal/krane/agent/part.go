package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
)

// part is one component in the cluster.
type part struct {
	component render.Component
	owner     apply.Owner
	live      *apply.Live
	applier   *apply.Applier
}

// passTimeout bounds one pass.
const passTimeout = time.Minute

func idOf(o *unstructured.Unstructured) apply.ID {
	kind := o.GroupVersionKind()
	return apply.ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// apply applies the objects and returns the results of those that were not as
// they should be, valid with an error.
func (p *part) apply(ctx context.Context, objects []*unstructured.Unstructured) ([]apply.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	set, invalid := apply.NewSet(p.owner, objects, apply.SetOptions{})
	if set == nil {
		return nil, invalid
	}
	report, err := p.applier.Apply(ctx, set)
	return report.Results, errors.Join(invalid, err)
}

// remove deletes the objects, and no other. Each must be ours, and is deleted only as
// it was seen.
func (p *part) remove(ctx context.Context, ids []apply.ID, limit apply.Limit) (apply.PruneReport, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	return p.applier.Delete(ctx, ids, apply.DeleteOptions{Limit: limit})
}

// synced returns nil when all kinds of the component are known.
func (p *part) synced() error { return p.live.Unseen() }

// known reports whether all kinds of the component are.
func (p *part) known() bool { return p.synced() == nil }

// uid returns the UID of the object, "" if there is none or it is being deleted.
func (p *part) uid(id apply.ID) types.UID {
	o, err := p.live.Get(id)
	if err != nil || o.Deleting {
		return ""
	}
	return o.UID
}

// foreign returns an error if a result is that the object is not ours to delete.
func foreign(report apply.PruneReport) error {
	for _, result := range report.Results {
		if errors.Is(result.Err, apply.ErrNotOurs) {
			return fmt.Errorf("%s: %w", result.ID, errForeign)
		}
	}
	return nil
}
