package apply

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Override is a change of one object by others that a repair has undone.
type Override struct {
	ID ID
	// Fields were changed, removed or reordered since our last apply of the same desired
	// state, and are as stated again. The values of a Secret are masked.
	Fields []diff.Field
}

// maxOverridden is how many fields an override names.
const maxOverridden = 5

// String returns the override for people: "Deployment.apps/shop/web: .spec.paused was changed by
// kubectl-edit; set back". It has no values.
func (o Override) String() string {
	texts := make([]string, 0, maxOverridden)
	for _, f := range o.Fields[:min(len(o.Fields), maxOverridden)] {
		how := " was changed"
		switch f.Difference {
		case diff.Missing:
			how = " was removed"
		case diff.Reordered:
			how = " was reordered"
		default:
		}
		if len(f.By) > 0 {
			how += " by " + f.By[0].Manager
		}
		texts = append(texts, f.Path+how)
	}
	if more := len(o.Fields) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return o.ID.String() + ": " + strings.Join(texts, "; ") + "; set back"
}

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
