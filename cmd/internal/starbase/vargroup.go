package starbase

// VarGroup is a named set of secret values of one environment of a project.
// Its entries must never be logged.
type VarGroup struct {
	// VarGroupID is a UUID.
	VarGroupID string `json:"var_group_id"`
	// ProjectID is a UUID.
	ProjectID string `json:"project_id"`
	// Environment is the environment the group may be attached in.
	Environment string `json:"environment"`
	// Entries are the values by name.
	Entries map[string]string `json:"entries"`
	// Checksum is "sha256:<hex>" of the entries.
	Checksum string `json:"checksum"`
}
