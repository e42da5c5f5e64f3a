package starbase

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Schema is the value of the member "schema" that this package writes and the
// only one that [Decode] accepts.
const Schema = 1

// DesiredState is everything one cluster shall look like: the answer to
// GET /api/v1/clusters/{cluster_id}/desired-state.
//
// The members Schema, Complete, Counts, Digest and Version are filled by
// [DesiredState.Seal].
type DesiredState struct {
	// Version is opaque to agents. Two bodies of one cluster with the same
	// version have the same content.
	Version string `json:"version"`
	// Schema is 1, or 0 for a body in basic mode.
	Schema int `json:"schema,omitempty"`
	// ClusterID is the cluster this body is for, a UUID.
	ClusterID string `json:"cluster_id,omitempty"`
	// Epoch names one unbroken history of the server's database. It changes
	// when the database was restored; generations of different epochs cannot
	// be compared.
	Epoch string `json:"epoch,omitempty"`
	// Nonce is the server's part of Version. It is not on the wire.
	Nonce string `json:"-"`
	// Generation rises with every change inside an epoch. It starts at 1.
	Generation int64 `json:"generation,omitempty"`
	// Complete is true when the server wrote everything it meant to write.
	Complete bool `json:"complete,omitempty"`
	// Counts are the lengths of the three lists, tombstones included.
	Counts Counts `json:"counts"`
	// Digest is described in the package documentation.
	Digest string `json:"digest,omitempty"`
	// ApprovedDeletions is the digest of the held deletions ([HeldDeletions]) that a
	// person has approved: the agent carries out exactly these. Empty, or the digest of
	// another set: no effect.
	ApprovedDeletions string `json:"approved_deletions,omitempty"`

	// ClusterConfig is what belongs to the cluster as a whole.
	ClusterConfig ClusterConfig `json:"cluster_config"`
	// Projects lists the namespaces; absent in basic mode.
	Projects []Project `json:"projects"`
	// Services lists the workloads.
	Services []Service `json:"services"`
	// VarGroups lists the groups of secret values.
	VarGroups []VarGroup `json:"var_groups"`
}

// Counts are the lengths of the lists of a [DesiredState].
type Counts struct {
	// Projects is the number of entries in projects.
	Projects int `json:"projects"`
	// Services is the number of entries in services.
	Services int `json:"services"`
	// VarGroups is the number of entries in var_groups.
	VarGroups int `json:"var_groups"`
}

// ClusterConfig is the part of the desired state that belongs to the cluster
// as a whole.
type ClusterConfig struct {
	// LBSizeUnits is the size of the cluster's load balancer, 1 to 200.
	LBSizeUnits int `json:"lb_size_units"`
}

// Basic reports whether the body carried no proof of completeness, because
// the server does not speak the extension.
func (d *DesiredState) Basic() bool { return d.Schema == 0 }

// Seal makes the body complete: it replaces nil lists by empty ones and sets
// Schema, Complete, Counts, Digest and Version. ClusterID, Epoch and
// Generation must be set before. Any later change of the lists or of
// ClusterConfig needs another Seal.
func (d *DesiredState) Seal() error {
	if d.ClusterID == "" || d.Epoch == "" || d.Generation < 1 {
		return fmt.Errorf("seal desired state: cluster id %q, epoch %q and generation %d must all be set", d.ClusterID, d.Epoch, d.Generation)
	}
	d.Projects = orEmpty(d.Projects)
	d.Services = orEmpty(d.Services)
	d.VarGroups = orEmpty(d.VarGroups)
	digest, err := d.ComputeDigest()
	if err != nil {
		return err
	}
	d.Schema = Schema
	d.Complete = true
	d.Counts = d.counts()
	d.Digest = digest
	d.Version = Version(d.Epoch, d.Generation, d.Nonce)
	return nil
}

// ComputeDigest returns the digest of the body as this package would write
// it. For a decoded body of a newer server that differs from Digest when the
// body carried members this package does not know; [Decode] has compared the
// digest with what was really sent.
func (d *DesiredState) ComputeDigest() (string, error) {
	body, err := json.Marshal(struct {
		ClusterConfig ClusterConfig `json:"cluster_config"`
		Projects      []Project     `json:"projects"`
		Services      []Service     `json:"services"`
		VarGroups     []VarGroup    `json:"var_groups"`
	}{d.ClusterConfig, d.Projects, d.Services, d.VarGroups})
	if err != nil {
		return "", fmt.Errorf("digest of desired state: %w", err)
	}
	members, err := parseObject(body)
	if err != nil {
		return "", fmt.Errorf("digest of desired state: %w", err)
	}
	return digestOf(members)
}

// Duplicates returns, sorted, every identity that more than one service of
// the body carries. Which of them is meant is undecidable, so none of them may be
// applied.
func (d *DesiredState) Duplicates() []Identity {
	seen := make(map[Identity]int, len(d.Services))
	var twice []Identity
	for i := range d.Services {
		id := d.Services[i].Identity()
		seen[id]++
		if seen[id] == 2 {
			twice = append(twice, id)
		}
	}
	slices.SortFunc(twice, Identity.Compare)
	return twice
}

// Version returns the version of a body: <epoch>-<generation>, and .<nonce> if there is
// one. A nonce that is new with each generation makes a version name one content, also
// when a database was restored and a lost generation is given again.
func Version(epoch string, generation int64, nonce string) string {
	version := fmt.Sprintf("%s-%d", epoch, generation)
	if nonce != "" {
		version += "." + nonce
	}
	return version
}

func (d *DesiredState) counts() Counts {
	return Counts{Projects: len(d.Projects), Services: len(d.Services), VarGroups: len(d.VarGroups)}
}

// Identity is what makes a service unique in a cluster.
type Identity struct {
	// ProjectID is a UUID.
	ProjectID string `json:"project_id"`
	// Environment is a name such as "production".
	Environment string `json:"environment"`
	// ServiceID is a UUID.
	ServiceID string `json:"service_id"`
}

// Compare orders identities by project, environment and service.
func (i Identity) Compare(other Identity) int {
	return cmp.Or(
		cmp.Compare(i.ProjectID, other.ProjectID),
		cmp.Compare(i.Environment, other.Environment),
		cmp.Compare(i.ServiceID, other.ServiceID),
	)
}

// String returns the three parts joined by slashes.
func (i Identity) String() string {
	return i.ProjectID + "/" + i.Environment + "/" + i.ServiceID
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
