package apply

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// compare adds the fields that differ.
func (p *pass) compare(
	ctx context.Context, it *item, t *write.Target, live *unstructured.Unstructured, change diff.Change,
) (diff.Change, Action, error) {
	stated, upsert := it.body.Decode(), t.Upsert
	options := diff.Options{
		Manager: p.live.Owner.Manager, Applied: live.GetAnnotations()[p.live.identity.HashAnnotation] == it.hash.String(),
	}
	fields, err := diff.Fields(stated, p.applier.writer.Moved(t, live).Object, options)
	if err != nil {
		change.Note = err.Error() // unreadable managedFields are replaced
	}
	if p.applier.writer.Supersedes(live) && !upsert {
		fields, err = p.defaulted(ctx, t, live, fields)
		switch {
		case err == nil:
		case write.Immutable(err) && t.Recreate && p.applier.writer.Recreatable(live, err) == nil:
			change.Action, change.Note = diff.Recreate, err.Error()
		case write.Immutable(err): // what the set leaves out cannot be given up
			return change, Failed, err
		default:
			change.Note = "defaults are not foreseen: " + err.Error()
		}
	}
	if upsert { // a replacement takes no field that has its value
		fields = slices.DeleteFunc(fields, func(f diff.Field) bool { return f.Difference == diff.Taken })
	}
	change.Fields = fields
	if upsert && diff.States(live.Object, stated) && len(fields) == 0 {
		return change, unchanged, nil
	}
	return change, send, nil
}

// defaulted returns the fields that change when the fields of superseded managers are taken
// over. These managers have written every default of the server, and a default that the
// set does not state returns: then nothing changes. Nor does it where the set leaves out the
// defaults within a list that is replaced as a whole. With an error the fields are returned as
// they were given.
func (p *pass) defaulted(ctx context.Context, t *write.Target, live *unstructured.Unstructured, fields []diff.Field) ([]diff.Field, error) {
	var removed []string
	written := false
	for _, f := range fields {
		if f.Difference == diff.Removed {
			removed = append(removed, f.Path)
		}
		written = written || f.Difference == diff.Changed || f.Difference == diff.Missing
	}
	masked := t.Kind.GroupKind() == (schema.GroupKind{Kind: "Secret"}) // its values have no defaults
	if len(removed) == 0 && !written || masked {
		return fields, nil
	}
	after, err := p.applier.writer.Foresee(ctx, t, live, removed)
	if err != nil {
		return fields, err
	}
	// Under the entries of before, what has returned is still a field that we would give up.
	after.SetManagedFields(p.applier.writer.Moved(t, live).GetManagedFields())
	returned, err := diff.Fields(t.Body.Decode(), after.Object, diff.Options{Manager: p.live.Owner.Manager})
	if err != nil {
		return fields, err
	}
	differs, err := diff.Fields(after.Object, live.Object, diff.Options{Manager: p.live.Owner.Manager})
	if err != nil {
		return fields, err
	}
	now := map[string]diff.Value{}
	for _, f := range returned {
		if f.Difference == diff.Removed {
			now[f.Path] = f.Live
		}
	}
	left := fields[:0]
	for _, f := range fields {
		switch value, returns := now[f.Path]; {
		case f.Difference == diff.Removed && returns && value == f.Live:
			continue
		case f.Difference == diff.Removed && returns:
			f.Difference, f.Desired = diff.Changed, value
		case (f.Difference == diff.Changed || f.Difference == diff.Missing) && !within(differs, f.Path):
			continue
		}
		left = append(left, f)
	}
	return left, nil
}

// within reports whether a value at the path or below it is written.
func within(fields []diff.Field, path string) bool {
	return slices.ContainsFunc(fields, func(f diff.Field) bool {
		below, ok := strings.CutPrefix(f.Path, path)
		return ok && (below == "" || below[0] == '.' || below[0] == '[') && (f.Difference == diff.Changed || f.Difference == diff.Missing)
	})
}
