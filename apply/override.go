package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// undid notes what a repair has undone.
func (p *pass) undid(id ID, fields []diff.Field) {
	if len(fields) == 0 {
		return
	}
	p.overriding.Lock()
	defer p.overriding.Unlock()
	p.overrides = append(p.overrides, Override{id, fields})
}

// overridden returns the fields that others have changed in an object since our last apply. It is empty
// if the object cannot be read: the repair that follows then says why, or there is none.
func (p *pass) overridden(ctx context.Context, it *item, look *view.Look, t *write.Target) []diff.Field {
	r := &look.Record
	ours := look.Found && r.Hash() == it.hash && (r.Unknown() || r.Foreign()) && !r.Superseded() && !r.Bare() && !t.Upsert
	if !p.applier.Overrides || p.applier.Objects == nil || !ours {
		return nil
	}
	found, err := p.applier.writer.Look(ctx, t)
	live, whole := found.(*unstructured.Unstructured)
	if err != nil || !whole || string(live.GetUID()) != t.UID {
		return nil
	}
	all, err := diff.Fields(it.body.Decode(), live.Object, diff.Options{Manager: p.live.Owner.Manager, Applied: true})
	if err != nil {
		return nil
	}
	var fields []diff.Field
	for _, f := range all {
		if f.Difference == diff.Changed || f.Difference == diff.Missing || f.Difference == diff.Reordered {
			fields = append(fields, f)
		}
	}
	return fields
}
