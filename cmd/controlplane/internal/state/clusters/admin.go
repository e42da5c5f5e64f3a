package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// placing is the body that registers a cluster.
type placing struct {
	// Region is where the cluster runs, such as nyc3: 1 to 63 characters of a-z, 0-9 and -.
	Region string `json:"region"`
}

// Wrong returns the invalid fields.
func (p placing) Wrong() (fields []starbase.FieldError) {
	const longest = 63
	if p.Region == "" || len(p.Region) > longest || strings.ContainsFunc(p.Region, notName) {
		fields = append(
			fields,
			starbase.FieldError{Field: "region", Value: fmt.Sprintf("%.80q", p.Region), Want: "1 to 63 characters of a-z, 0-9 and -, like nyc3"},
		)
	}
	return fields
}

func notName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
}

// registration is the answer to the registration of a cluster.
type registration struct {
	ClusterID  string `json:"cluster_id"`
	Generation int64  `json:"generation"`
	// Token is the token of the cluster's agent, shown this once. Empty: it was registered
	// before.
	Token string `json:"token,omitempty"`
}

// clusterView is one cluster as GET shows it.
type clusterView struct {
	Cluster
	// Standings counts the services by where they stand.
	Standings map[Standing]int `json:"standings"`
	Services  []ServiceState   `json:"services"`
}

func (s *Server) putCluster(ctx context.Context, clusterID string, body placing) (answer registration, created bool, err error) {
	token, change, err := s.store.RegisterCluster(ctx, clusterID, body.Region)
	return registration{ClusterID: clusterID, Generation: change.Generation, Token: token}, change.Created, err
}

func (s *Server) showCluster(ctx context.Context, clusterID string) (clusterView, error) {
	cluster, services, err := s.store.Cluster(ctx, clusterID)
	view := clusterView{Cluster: cluster, Standings: map[Standing]int{}, Services: services}
	for i := range view.Services {
		view.Standings[view.Services[i].Standing]++
	}
	if view.Services == nil {
		view.Services = []ServiceState{}
	}
	return view, err
}

func (s *Server) putConfig(ctx context.Context, clusterID string, config starbase.ClusterConfig) (Change, error) {
	if fields := config.Validate(); len(fields) > 0 {
		return Change{}, adminapi.Invalid(fields...)
	}
	return s.store.SetConfig(ctx, clusterID, config)
}

// approved is the answer to an approval.
type approved struct {
	Change
	// ApprovedDeletions is the digest that was approved.
	ApprovedDeletions string `json:"approved_deletions"`
}

func (s *Server) mayStartEpoch(ctx context.Context, clusterID string, _ struct{}) error {
	return s.store.Agents().Registered(ctx, clusterID)
}

func (s *Server) allowMassDelete(ctx context.Context, clusterID string, body agents.Approval) (approved, error) {
	change, err := s.store.ApproveDeletions(ctx, clusterID, body.Digest)
	return approved{change, body.Digest}, err
}

// rotated is the answer to the rotation of a token.
type rotated struct {
	ClusterID string `json:"cluster_id"`
	// Token is the new one, shown this once.
	Token string `json:"token"`
	// OverlapSeconds is how long the token of before stays valid, as it was asked for. It ends before
	// that if its own end comes first, or once the agent has renewed the new token:
	// previous_token_until of the object has the end of now.
	OverlapSeconds int64 `json:"overlap_seconds"`
}

func (s *Server) rotateToken(ctx context.Context, clusterID string, body adminapi.Rotation) (rotated, error) {
	token, err := s.store.Agents().Rotate(ctx, clusterID, body.Overlap())
	return rotated{clusterID, token, body.OverlapSeconds}, err
}

// epochAnswer is the answer to a new epoch.
type epochAnswer struct {
	Change
	Epoch string `json:"epoch"`
}

func (s *Server) startEpoch(ctx context.Context, clusterID string, _ struct{}) (epochAnswer, error) {
	epoch, change, err := s.store.StartEpoch(ctx, clusterID)
	return epochAnswer{change, epoch}, err
}

func (s *Server) putProject(ctx context.Context, projectID string, project Project) (ProjectChange, bool, error) {
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
		return ProjectChange{}, false, adminapi.Invalid(fields...)
	}
	change, err := s.store.PutProject(ctx, projectID, project)
	return change, change.Created, err
}

func (s *Server) putService(ctx context.Context, id starbase.Identity, service starbase.Service) (Change, bool, error) {
	fields := ownFields(service, id)
	if service.WorkspaceID != "" { // as GET answers it
		project, err := s.store.Project(ctx, id.ProjectID)
		if err != nil {
			return Change{}, false, err
		}
		if service.WorkspaceID != project.WorkspaceID {
			fields = append(fields, starbase.FieldError{
				Field: "workspace_id", Value: fmt.Sprintf("%.80q", service.WorkspaceID), Want: "that of the project, or none",
			})
		}
	}
	// The workspace is the project's; any valid one passes here.
	service.WorkspaceID = id.ProjectID
	service.ProjectID, service.ServiceID, service.Environment = id.ProjectID, id.ServiceID, id.Environment
	service.Deleted = false
	service.SetDefaults()
	if fields = append(fields, service.Validate()...); len(fields) > 0 {
		return Change{}, false, adminapi.Invalid(fields...)
	}
	change, err := s.store.PutService(ctx, service)
	return change, change.Created, err
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
