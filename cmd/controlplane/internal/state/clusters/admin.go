package clusters

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/approval"
)

// registration is the answer to the registration of a cluster.
type registration struct {
	ClusterID  string `json:"cluster_id"`
	Generation int64  `json:"generation"`
	Token      string `json:"token,omitempty"`
}

// clusterView is one cluster as GET shows it.
type clusterView struct {
	Cluster
	// Standings counts the services by where they stand.
	Standings map[Standing]int `json:"standings"`
	Services  []ServiceState   `json:"services"`
}

func (s *Server) putCluster(w http.ResponseWriter, r *http.Request, clusterID string) error {
	var body struct {
		Region string `json:"region"`
	}
	if err := adminapi.Decode(w, r, &body, true); err != nil {
		return err
	}
	const longest = 63
	if body.Region == "" || len(body.Region) > longest || strings.ContainsFunc(body.Region, notName) {
		return adminapi.Invalid(
			starbase.FieldError{Field: "region", Value: fmt.Sprintf("%.80q", body.Region), Want: "1 to 63 characters of a-z, 0-9 and -, like nyc3"},
		)
	}
	token, change, err := s.store.RegisterCluster(r.Context(), clusterID, body.Region)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(
		w,
		adminapi.CreatedStatus(change.Created),
		registration{ClusterID: clusterID, Generation: change.Generation, Token: token},
	)
}

func notName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
}

func (s *Server) listClusters(w http.ResponseWriter, r *http.Request) error {
	return adminapi.WritePart(
		r.Context(),
		w,
		adminapi.NewQuery(r),
		"clusters",
		func(c *Cluster) string { return c.ClusterID },
		s.store.ClustersAfter,
	)
}

func (s *Server) showCluster(w http.ResponseWriter, r *http.Request, clusterID string) error {
	cluster, services, err := s.store.Cluster(r.Context(), clusterID)
	if err != nil {
		return err
	}
	view := clusterView{Cluster: cluster, Standings: map[Standing]int{}, Services: services}
	for i := range view.Services {
		view.Standings[view.Services[i].Standing]++
	}
	if view.Services == nil {
		view.Services = []ServiceState{}
	}
	return adminapi.WriteJSON(w, http.StatusOK, view)
}

func (s *Server) putConfig(w http.ResponseWriter, r *http.Request, clusterID string) error {
	var config starbase.ClusterConfig
	if err := adminapi.Decode(w, r, &config, true); err != nil {
		return err
	}
	if fields := config.Validate(); len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	change, err := s.store.SetConfig(r.Context(), clusterID, config)
	return adminapi.WriteResult(w, change, err)
}

func (s *Server) allowMassDelete(w http.ResponseWriter, r *http.Request, clusterID string) error {
	digest, err := approval.Decode(w, r)
	if err != nil {
		return err
	}
	change, err := s.store.ApproveDeletions(r.Context(), clusterID, digest)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, struct {
		Change
		ApprovedDeletions string `json:"approved_deletions"`
	}{change, digest})
}

func (s *Server) rotateToken(w http.ResponseWriter, r *http.Request, clusterID string) error {
	overlap, err := adminapi.DecodeOverlap(w, r)
	if err != nil {
		return err
	}
	token, err := s.store.RotateToken(r.Context(), clusterID, overlap)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(
		w,
		http.StatusOK,
		map[string]any{"cluster_id": clusterID, "token": token, "overlap_seconds": int64(overlap / time.Second)},
	)
}

func (s *Server) startEpoch(w http.ResponseWriter, r *http.Request, clusterID string) error {
	if err := adminapi.DecodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	epoch, change, err := s.store.StartEpoch(r.Context(), clusterID)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, http.StatusOK, struct {
		Change
		Epoch string `json:"epoch"`
	}{change, epoch})
}

func (s *Server) putProject(w http.ResponseWriter, r *http.Request, projectID string) error {
	var project Project
	if err := adminapi.Decode(w, r, &project, true); err != nil {
		return err
	}
	served := starbase.Project{
		ProjectID: projectID, WorkspaceID: project.WorkspaceID, Slug: project.Slug,
		Quota: project.Quota, Limits: project.Limits, Egress: project.Egress,
	}
	served.SetDefaults()
	fields := served.Validate()
	// The namespace is decided by the store, from slugs that are valid.
	fields = slices.DeleteFunc(fields, func(f starbase.FieldError) bool { return f.Field == "namespace" })
	if !starbase.ValidUUID(project.ClusterID) {
		fields = append(
			fields,
			starbase.FieldError{Field: "cluster_id", Value: fmt.Sprintf("%.80q", project.ClusterID), Want: "the UUID of a registered cluster"},
		)
	}
	if !starbase.ValidSlug(project.WorkspaceSlug) {
		fields = append(
			fields,
			starbase.FieldError{
				Field: "workspace_slug",
				Value: fmt.Sprintf("%.80q", project.WorkspaceSlug),
				Want:  "2 to 63 characters of a-z, 0-9 and -, first and last not -",
			},
		)
	}
	if len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	change, err := s.store.PutProject(r.Context(), projectID, project)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, adminapi.CreatedStatus(change.Created), change)
}

func (s *Server) deleteProject(w http.ResponseWriter, r *http.Request, projectID string) error {
	change, err := s.store.DeleteProject(r.Context(), projectID)
	return adminapi.WriteResult(w, change, err)
}

func (s *Server) putService(w http.ResponseWriter, r *http.Request, id starbase.Identity) error {
	var service starbase.Service
	if err := adminapi.Decode(w, r, &service, true); err != nil {
		return err
	}
	fields := ownFields(service, id)
	// The workspace is the project's; any valid one passes here.
	service.WorkspaceID = id.ProjectID
	service.ProjectID, service.ServiceID, service.Environment = id.ProjectID, id.ServiceID, id.Environment
	service.Deleted = false
	service.SetDefaults()
	if fields = append(fields, service.Validate()...); len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	change, err := s.store.PutService(r.Context(), service)
	if err != nil {
		return err
	}
	return adminapi.WriteJSON(w, adminapi.CreatedStatus(change.Created), change)
}

// ownFields refuses the fields that the path or the project decides.
func ownFields(service starbase.Service, id starbase.Identity) (fields []starbase.FieldError) {
	for _, field := range []struct{ name, value, path string }{
		{"project_id", service.ProjectID, id.ProjectID},
		{"service_id", service.ServiceID, id.ServiceID},
		{"environment", service.Environment, id.Environment},
	} {
		if field.value != "" && field.value != field.path {
			fields = append(
				fields,
				starbase.FieldError{Field: field.name, Value: fmt.Sprintf("%.80q", field.value), Want: "that of the path, or none"},
			)
		}
	}
	if service.WorkspaceID != "" {
		fields = append(
			fields,
			starbase.FieldError{Field: "workspace_id", Value: fmt.Sprintf("%.80q", service.WorkspaceID), Want: "none: it is that of the project"},
		)
	}
	if service.Deleted {
		fields = append(fields, starbase.FieldError{Field: "deleted", Value: "true", Want: "false: a service is deleted with DELETE"})
	}
	if len(service.VarGroups) > 0 {
		fields = append(
			fields,
			starbase.FieldError{
				Field: "var_groups",
				Value: fmt.Sprintf("%d groups", len(service.VarGroups)),
				Want:  "none: PUT the list of groups to .../var-groups",
			},
		)
	}
	return fields
}

func (s *Server) deleteService(w http.ResponseWriter, r *http.Request, id starbase.Identity) error {
	change, err := s.store.DeleteService(r.Context(), id)
	return adminapi.WriteResult(w, change, err)
}
