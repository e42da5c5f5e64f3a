package diff

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Plan is an ordered list of changes: a value that can be shown, stored as JSON,
// approved by its hash, and carried out only while it still holds. The zero Plan
// changes nothing.
type Plan struct {
	Changes []Change `json:"changes,omitempty"`
}

// Change is one object's part of a [Plan].
type Change struct {
	Action     Action `json:"action"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// UID and ResourceVersion identify the live object for which the change was
	// decided; empty for Create.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Desired is the [Hash] of the desired object; zero for Delete and Release. It has no key:
	// do not show that of a Secret, whose value could be found by trying all.
	Desired Sum `json:"desired,omitzero"`
	// Fields are the differences that an Update resolves.
	Fields []Field `json:"fields,omitempty"`
	// Note is for people: why, or what to watch for.
	Note string `json:"note,omitempty"`
}

// Action is the kind of a change of an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	// Recreate deletes the object and creates it again, for a field that cannot
	// be changed.
	Recreate Action = "recreate"
	Delete   Action = "delete"
	// Release leaves the object in place and gives it up.
	Release Action = "release"
	// Keep changes nothing: the Fields are what other managers have added. No plan of
	// package apply has it.
	Keep Action = "keep"
)

// Hash returns the content hash of the plan. Plans with equal changes in the same
// order have equal hashes, here and after a way through JSON.
func (p Plan) Hash() Sum {
	changes := make([]any, len(p.Changes))
	for i, c := range p.Changes {
		fields := make([]any, len(c.Fields))
		for j, f := range c.Fields {
			parts := []any{f.Path, string(f.Difference), string(f.Desired), string(f.Live), f.Structural}
			for _, w := range f.By {
				parts = append(parts, []any{w.Manager, w.Operation, w.Subresource, w.Time.UTC().Format(time.RFC3339Nano)})
			}
			fields[j] = parts
		}
		changes[i] = []any{
			string(c.Action), c.APIVersion, c.Kind, c.Namespace, c.Name,
			c.UID, c.ResourceVersion, c.Desired.String(), fields, c.Note,
		}
	}
	sum, err := Hash(changes)
	if err != nil {
		return Sum{} // never: there are strings and lists only
	}
	return sum
}

// String returns the plan for people: a line for each change, one for each of its
// fields, and one that counts.
func (p Plan) String() string {
	if len(p.Changes) == 0 {
		return "nothing to do\n"
	}
	var b strings.Builder
	counts := map[Action]int{}
	for _, c := range p.Changes {
		counts[c.Action]++
		b.WriteString(c.String() + "\n")
		for _, f := range c.Fields {
			b.WriteString("    " + f.String() + "\n")
		}
	}
	separator := ""
	for _, action := range []Action{Create, Update, Recreate, Delete, Release, Keep} {
		if n := counts[action]; n > 0 {
			fmt.Fprintf(&b, "%s%d to %s", separator, n, action)
			separator = ", "
		}
	}
	b.WriteString("\n")
	return b.String()
}

// String returns the change for people, on one line, without its fields:
// ~ update Deployment.apps/shop/web.
func (c Change) String() string {
	sign := map[Action]string{Create: "+", Update: "~", Recreate: "-+", Delete: "-", Release: "o", Keep: "="}[c.Action]
	kind := c.Kind
	if gv, err := schema.ParseGroupVersion(c.APIVersion); err == nil && gv.Group != "" {
		kind += "." + gv.Group
	}
	id := kind + "/" + c.Name
	if c.Namespace != "" {
		id = kind + "/" + c.Namespace + "/" + c.Name
	}
	line := strings.TrimSpace(sign + " " + string(c.Action) + " " + id)
	if c.Note != "" {
		line += " (" + c.Note + ")"
	}
	return printable(line)
}
