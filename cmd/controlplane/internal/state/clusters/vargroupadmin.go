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

func (s *Server) putVarGroup(w http.ResponseWriter, r *http.Request, id groupID) error {
	var group VarGroup
	if err := adminapi.Decode(w, r, &group, true); err != nil {
		return err
	}
	if fields := group.validate(); len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	change, err := s.store.PutVarGroup(r.Context(), id.project, id.group, group)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, adminapi.CreatedStatus(change.Created), change)
}

// validate returns the invalid fields of a group that is put, of the fields agents do not see.
func (g VarGroup) validate() (fields []starbase.FieldError) {
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

func (s *Server) showVarGroup(w http.ResponseWriter, r *http.Request, id groupID) error {
	group, err := s.store.VarGroup(r.Context(), id.project, id.group)
	if err != nil {
		return err
	}
	s.read(r.Context(), about(id.project, id.group))
	return adminapi.WriteJSON(w, http.StatusOK, group)
}

// read notes that an administrator reads var groups: values that are no secret are answered.
func (s *Server) read(ctx context.Context, name string) {
	audit.Note(ctx, s.store.Database, s.logger, audit.Change{Verb: audit.Read, Kind: audit.KindVarGroup, Name: name, Outcome: "answered"})
}

func (s *Server) listVarGroups(w http.ResponseWriter, r *http.Request, projectID string) error {
	s.read(r.Context(), projectID)
	return adminapi.WritePart(r.Context(), w, adminapi.NewQuery(r), "var_groups", func(g *StoredVarGroup) string { return g.VarGroupID },
		func(ctx context.Context, after string, limit int) ([]StoredVarGroup, error) {
			return s.store.VarGroupsAfter(ctx, projectID, after, limit)
		})
}

func (s *Server) deleteVarGroup(w http.ResponseWriter, r *http.Request, id groupID) error {
	change, err := s.store.DeleteVarGroup(r.Context(), id.project, id.group)
	return adminapi.WriteResult(w, change, err)
}

func (s *Server) attachVarGroups(w http.ResponseWriter, r *http.Request, id starbase.Identity) error {
	var body attachedBody
	if err := adminapi.Decode(w, r, &body, true); err != nil {
		return err
	}
	var fields []starbase.FieldError
	seen := map[string]bool{}
	for i, groupID := range body.VarGroups {
		field := fmt.Sprintf("var_groups[%d]", i)
		switch {
		case !starbase.ValidUUID(groupID):
			fields = append(fields, starbase.FieldError{Field: field, Value: fmt.Sprintf("%.80q", groupID), Want: "the id of a var group, a UUID"})
		case seen[groupID]:
			fields = append(fields, starbase.FieldError{Field: field, Value: fmt.Sprintf("%q", groupID), Want: "each group once"})
		}
		seen[groupID] = true
	}
	if body.VarGroups == nil {
		fields = append(
			fields,
			starbase.FieldError{Field: "var_groups", Value: "none", Want: "the ordered list of the ids of var groups; [] for none"},
		)
	}
	if len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	change, err := s.store.AttachVarGroups(r.Context(), id, body.VarGroups)
	return adminapi.WriteResult(w, change, err)
}

func (s *Server) showAttached(w http.ResponseWriter, r *http.Request, id starbase.Identity) error {
	groups, err := s.store.AttachedVarGroups(r.Context(), id)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, attachedBody{groups})
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
