package agent

import (
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// varGroups are the var groups of a desired state. Their entries are written to Secrets,
// and to nothing else.
type varGroups struct {
	valid   map[string]*starbase.VarGroup // by id
	refused map[string]string             // id -> why it, and what it is attached to, is left as it is
}

// readVarGroups finds the groups by id.
func (r *renderer) readVarGroups() {
	r.groups = varGroups{valid: map[string]*starbase.VarGroup{}, refused: map[string]string{}}
	for i := range r.state.VarGroups {
		g := &r.state.VarGroups[i]
		why := ""
		if r.groups.valid[g.VarGroupID] != nil || r.groups.refused[g.VarGroupID] != "" {
			why = "it is stated more than once"
		} else if problems := g.Validate(); len(problems) > 0 {
			why = join(problems)
		}
		if why == "" {
			r.groups.valid[g.VarGroupID] = g
			continue
		}
		if first := r.groups.valid[g.VarGroupID]; first != nil {
			r.out.absence.rejectGroup(first)
			delete(r.groups.valid, g.VarGroupID)
		}
		r.groups.refused[g.VarGroupID] = why
		r.out.absence.rejectGroup(g)
	}
}

// judge returns why a service cannot be applied with its groups, "" if it can.
func (v varGroups) judge(s *starbase.Service) (class, message string) {
	for i, attached := range s.VarGroups {
		field := fmt.Sprintf("var_groups[%d].var_group_id: %q", i, attached.VarGroupID)
		switch g := v.valid[attached.VarGroupID]; {
		case v.refused[attached.VarGroupID] != "":
			return classInvalid, field + "; the group is invalid: " + v.refused[attached.VarGroupID]
		case g == nil:
			return classNoGroup, field + "; the group is not in the desired state"
		case !g.Fits(s.Identity()):
			return classInvalid, field + "; want a group of the project, for this environment or for all"
		}
	}
	return "", ""
}

// secrets returns the Secrets of a project's groups.
func (v varGroups) secrets(p *starbase.Project) (objects []*unstructured.Unstructured) {
	for _, g := range v.valid {
		if g.ProjectID == p.ProjectID {
			objects = append(objects, secret(p, g))
		}
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
		return idOfObject(a).Compare(idOfObject(b))
	})
	return objects
}

func secret(p *starbase.Project, g *starbase.VarGroup) *unstructured.Unstructured {
	labels := projectLabels(p)
	if g.Environment != "" {
		labels = environmentLabels(p, g.Environment)
	}
	labels[labelVarGroupID] = hex32(g.VarGroupID)
	data := make(object, len(g.Entries))
	for name, value := range g.Entries {
		data[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return newObject("v1", "Secret", p.Namespace, secretName(g.VarGroupID), labels, object{"type": "Opaque", "data": data})
}

// checksum returns the checksum of all groups of a service, "" for none.
func (v varGroups) checksum(s *starbase.Service) string {
	if len(s.VarGroups) == 0 {
		return ""
	}
	var groups []*starbase.VarGroup
	for _, attached := range s.Attached() {
		groups = append(groups, v.valid[attached.VarGroupID])
	}
	return starbase.VarGroupChecksum(groups...)
}
