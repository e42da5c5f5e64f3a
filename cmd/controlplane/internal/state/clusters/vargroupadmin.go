package clusters

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// attachedBody is the ordered list of the groups of a service.
type attachedBody struct {
	VarGroups []string `json:"var_groups"`
}

func (s *Server) putVarGroup(ctx context.Context, id groupID, group VarGroup) (Change, bool, error) {
	change, err := s.store.PutVarGroup(ctx, id.project, id.group, group)
	return change, change.Created, err
}

// Wrong returns the invalid fields of a group that is put, of the fields agents do not see.
func (g VarGroup) Wrong() (fields []starbase.FieldError) {
	if !starbase.ValidVarGroupName(g.Name) {
		fields = append(
			fields,
			starbase.FieldError{
				Field: "name",
				Value: fmt.Sprintf("%.80q", g.Name),
				Want:  "1 to 63 letters, digits, spaces, _, . and -, first and last a letter or digit",
			},
		)
	}
	seen := map[string]bool{}
	for i, e := range g.Entries {
		if seen[e.Key] {
			fields = append(
				fields,
				starbase.FieldError{Field: fmt.Sprintf("entries[%d].key", i), Value: fmt.Sprintf("%.80q", e.Key), Want: "each key once"},
			)
		}
		seen[e.Key] = true
	}
	return fields
}

func (s *Server) showVarGroup(ctx context.Context, id groupID) (StoredVarGroup, error) {
	group, err := s.store.VarGroup(ctx, id.project, id.group)
	if err == nil {
		s.read(ctx, about(id.project, id.group))
	}
	return group, err
}

// read notes that an administrator reads var groups: values that are no secret are answered.
func (s *Server) read(ctx context.Context, name string) {
	audit.Note(ctx, s.store.Database, s.logger, audit.Change{Verb: audit.Read, Kind: audit.KindVarGroup, Name: name, Outcome: "answered"})
}

func (s *Server) listVarGroups(ctx context.Context, projectID, after string, limit int) ([]StoredVarGroup, error) {
	s.read(ctx, projectID)
	return s.store.VarGroupsAfter(ctx, projectID, after, limit)
}

func (s *Server) deleteVarGroup(ctx context.Context, id groupID) (Change, error) {
	return s.store.DeleteVarGroup(ctx, id.project, id.group)
}

// Wrong returns the invalid fields.
func (b attachedBody) Wrong() (fields []starbase.FieldError) {
	seen := map[string]bool{}
	for i, groupID := range b.VarGroups {
		field := fmt.Sprintf("var_groups[%d]", i)
		switch {
		case !starbase.ValidUUID(groupID):
			fields = append(fields, starbase.FieldError{Field: field, Value: fmt.Sprintf("%.80q", groupID), Want: "the id of a var group, a UUID"})
		case seen[groupID]:
			fields = append(fields, starbase.FieldError{Field: field, Value: fmt.Sprintf("%q", groupID), Want: "each group once"})
		}
		seen[groupID] = true
	}
	if b.VarGroups == nil {
		fields = append(
			fields,
			starbase.FieldError{Field: "var_groups", Value: "none", Want: "the ordered list of the ids of var groups; [] for none"},
		)
	}
	return fields
}

func (s *Server) attachVarGroups(ctx context.Context, id starbase.Identity, body attachedBody) (Change, error) {
	return s.store.AttachVarGroups(ctx, id, body.VarGroups)
}

func (s *Server) showAttached(ctx context.Context, id starbase.Identity) (attachedBody, error) {
	groups, err := s.store.AttachedVarGroups(ctx, id)
	return attachedBody{groups}, err
}

func clusterPath(r *http.Request) (string, error) { return adminapi.PathUUID(r, "cluster_id") }

func projectPath(r *http.Request) (string, error) { return adminapi.PathUUID(r, "project_id") }

// groupID is the var group that a path names.
type groupID struct{ project, group string }

func groupPath(r *http.Request) (id groupID, err error) {
	if id.project, err = projectPath(r); err != nil {
		return id, err
	}
	id.group, err = adminapi.PathUUID(r, "var_group_id")
	return id, err
}

// servicePath returns the service that a path names.
func servicePath(r *http.Request) (id starbase.Identity, err error) {
	if id.ProjectID, err = projectPath(r); err != nil {
		return id, err
	}
	id.ServiceID, err = adminapi.PathUUID(r, "service_id")
	id.Environment = r.PathValue("environment")
	return id, err
}
