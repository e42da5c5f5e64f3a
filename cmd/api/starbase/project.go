package starbase

// NamespacePrefix is how the name of the namespace of every project begins.
const NamespacePrefix = "proj-"

// Project is one tenant namespace; the environments of the project share it.
type Project struct {
	// ProjectID is a UUID.
	ProjectID string `json:"project_id"`
	// WorkspaceID is the billing boundary, a UUID.
	WorkspaceID string `json:"workspace_id"`
	// Slug is the short name, 2 to 63 characters.
	Slug string `json:"slug"`
	// Namespace is the final name of the namespace, decided by the control
	// plane and the same for the life of the project.
	Namespace string `json:"namespace"`
	// Quota are Kubernetes quantities by resource name, for the
	// ResourceQuota. Empty: none is made.
	Quota map[string]string `json:"quota,omitempty"`
	// Limits are for the LimitRange. Zero: none is made.
	Limits Limits `json:"limits,omitzero"`
	// Egress lists what the pods may reach beside their environment, DNS and
	// TCP 443.
	Egress []Egress `json:"egress,omitempty"`
	// Deleted marks a tombstone: the namespace shall be removed.
	Deleted bool `json:"deleted"`
}

// SetDefaults writes out what the contract lets a sender leave out: an egress
// rule without a protocol is TCP.
func (p *Project) SetDefaults() {
	for i := range p.Egress {
		if p.Egress[i].Protocol == "" {
			p.Egress[i].Protocol = ProtocolTCP
		}
	}
}

// Limits are the bounds and defaults for each container of a namespace, as
// Kubernetes quantities by resource name.
type Limits struct {
	// Default is the limit of a container that states none.
	Default map[string]string `json:"default,omitempty"`
	// DefaultRequest is the request of a container that states none.
	DefaultRequest map[string]string `json:"default_request,omitempty"`
	// Max is the most a container may ask for.
	Max map[string]string `json:"max,omitempty"`
	// Min is the least a container may ask for.
	Min map[string]string `json:"min,omitempty"`
}

// IsZero reports whether nothing is stated; it is then left out of the JSON.
func (l Limits) IsZero() bool {
	return len(l.Default)+len(l.DefaultRequest)+len(l.Max)+len(l.Min) == 0
}

// Egress is one destination that the pods of a project may reach.
type Egress struct {
	// CIDR is a network in prefix notation with no bits set behind the
	// prefix.
	CIDR string `json:"cidr"`
	// Port is 1 to 65535. Zero: every port.
	Port int `json:"port,omitempty"`
	// Protocol is "TCP" or "UDP". Empty: TCP.
	Protocol string `json:"protocol,omitempty"`
}
