package starbase

import "github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"

// Service is one workload in one environment of a project.
type Service struct {
	// WorkspaceID is the billing boundary, a UUID. Not part of the identity.
	WorkspaceID string `json:"workspace_id"`
	// ProjectID is a UUID.
	ProjectID string `json:"project_id"`
	// ServiceID is a UUID.
	ServiceID string `json:"service_id"`
	// Environment is an RFC 1123 label of at most 30 characters.
	Environment string `json:"environment"`
	// ServiceName is the name for people and object names: an RFC 1035
	// label. Empty: the service id serves as name.
	ServiceName string `json:"service_name,omitempty"`
	// Tier is shown only and never the source of a price.
	Tier string `json:"tier,omitempty"`
	// Image is a container image reference.
	Image string `json:"image"`
	// Replicas is the number of pods, 0 to 1000. With Autoscaling it is the number to
	// begin with, moved into its range.
	Replicas int `json:"replicas"`
	// Env are the plain environment variables.
	Env map[string]string `json:"env,omitempty"`
	// Ports are the ports the container listens on.
	Ports []Port `json:"ports,omitempty"`
	// Hostname is the name the service is routed under. Empty: no route.
	Hostname string `json:"hostname,omitempty"`
	// Resources are the requests and limits of the container.
	Resources Resources `json:"resources,omitzero"`
	// Probes are the health checks of the container.
	Probes Probes `json:"probes,omitzero"`
	// PodSecurity is the level of the Pod Security Standards that its pods keep: restricted,
	// or baseline where the cluster allows that. Empty: restricted.
	PodSecurity isolation.Level `json:"pod_security,omitempty"`
	// Autoscaling, unless zero, asks for an autoscaler.
	Autoscaling Autoscaling `json:"autoscaling,omitzero"`
	// RestartNonce is a UUID; another one restarts the pods.
	RestartNonce string `json:"restart_nonce,omitempty"`
	// VarGroups are the groups of secret values that are attached.
	VarGroups []ServiceVarGroup `json:"var_groups,omitempty"`
	// Deployment is where the running state comes from.
	Deployment Deployment `json:"deployment,omitzero"`
	// Deleted marks a tombstone: the service shall be removed. Of a tombstone
	// only the identity counts.
	Deleted bool `json:"deleted"`
}

// Identity returns what makes the service unique in its cluster.
func (s *Service) Identity() Identity {
	return Identity{ProjectID: s.ProjectID, Environment: s.Environment, ServiceID: s.ServiceID}
}

// SetDefaults writes out what the contract lets a sender leave out: a port
// without a protocol is TCP.
func (s *Service) SetDefaults() {
	for i := range s.Ports {
		if s.Ports[i].Protocol == "" {
			s.Ports[i].Protocol = ProtocolTCP
		}
	}
}

// The protocols of a [Port] and of an [Egress] rule.
const (
	ProtocolTCP = "TCP"
	ProtocolUDP = "UDP"
)

// Port is a port of a service's container.
type Port struct {
	// ContainerPort is 1 to 65535.
	ContainerPort int `json:"container_port"`
	// Protocol is "TCP" or "UDP". Empty: TCP.
	Protocol string `json:"protocol"`
}

// Resources are Kubernetes quantities by resource name, such as
// {"cpu": "250m", "memory": "256Mi"}.
type Resources struct {
	// Requests is what the scheduler sets aside.
	Requests map[string]string `json:"requests,omitempty"`
	// Limits is what the container may use.
	Limits map[string]string `json:"limits,omitempty"`
}

// IsZero reports whether nothing is stated; it is then left out of the JSON.
func (r Resources) IsZero() bool { return len(r.Requests)+len(r.Limits) == 0 }

// Probes are the health checks of a container. A probe that is zero is not
// set.
type Probes struct {
	// Startup holds the other two back until it succeeds.
	Startup Probe `json:"startup,omitzero"`
	// Readiness decides whether the pod gets traffic.
	Readiness Probe `json:"readiness,omitzero"`
	// Liveness decides whether the container is restarted.
	Liveness Probe `json:"liveness,omitzero"`
}

// Probe is one health check: an HTTP GET when Path is set, a TCP connection
// otherwise. Zero durations and thresholds mean the default of Kubernetes.
type Probe struct {
	// Path is the HTTP path, starting with a slash. Empty: TCP.
	Path string `json:"path,omitempty"`
	// Port is 1 to 65535. Required.
	Port int `json:"port"`
	// InitialDelaySeconds is the wait before the first check.
	InitialDelaySeconds int `json:"initial_delay_seconds,omitempty"`
	// PeriodSeconds is the time between checks.
	PeriodSeconds int `json:"period_seconds,omitempty"`
	// TimeoutSeconds is the longest a check may take.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
	// FailureThreshold is the number of failed checks in a row that count.
	FailureThreshold int `json:"failure_threshold,omitempty"`
}

// Autoscaling is the range and the targets of an autoscaler. The zero value
// means none.
type Autoscaling struct {
	// Min is the least number of pods, 1 or more.
	Min int `json:"min"`
	// Max is the greatest number of pods, at least Min and at most 1000.
	Max int `json:"max"`
	// CPUPercent is the wanted use of the requested processor time, 1 to
	// 1000. Zero: no target.
	CPUPercent int `json:"cpu_percent,omitempty"`
	// MemoryPercent is the wanted use of the requested memory, 1 to 1000.
	// Zero: no target.
	MemoryPercent int `json:"memory_percent,omitempty"`
}

// ServiceVarGroup attaches a [VarGroup] to a service.
type ServiceVarGroup struct {
	// VarGroupID is a UUID.
	VarGroupID string `json:"var_group_id"`
	// AttachOrder orders the groups of a service; the higher wins a key.
	AttachOrder int `json:"attach_order"`
}

// Deployment is the provenance of a service: build, commit and
// author.
type Deployment struct {
	// ID is the id of the deployment.
	ID string `json:"id,omitempty"`
	// BuildID is the id of the build.
	BuildID string `json:"build_id,omitempty"`
	// GitSHA is the commit.
	GitSHA string `json:"git_sha,omitempty"`
	// GitRef is the branch or tag.
	GitRef string `json:"git_ref,omitempty"`
	// GitRepo is the repository.
	GitRepo string `json:"git_repo,omitempty"`
	// ImageRef is the image by digest, without a tag.
	ImageRef string `json:"image_ref,omitempty"`
	// DeployedAt is a time in RFC 3339.
	DeployedAt string `json:"deployed_at,omitempty"`
	// DeployedBy is a person or a program.
	DeployedBy string `json:"deployed_by,omitempty"`
	// ChangeCause is one line for "kubectl rollout history".
	ChangeCause string `json:"change_cause,omitempty"`
}
