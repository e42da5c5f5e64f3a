package starbase

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/snapshot"
)

const (
	// MaxSnapshots is the number of records in one batch.
	MaxSnapshots = 5000
	// SnapshotMaxAge is how old a record may be when it is received. Agents keep what
	// they could not send for 24 hours.
	SnapshotMaxAge = 48 * time.Hour

	maxCPUMillis   = 1_000_000_000
	maxMemoryBytes = 1 << 50
)

// Snapshot is the billing record of one customer pod at one instant: an entry of the
// body of POST /api/v1/clusters/{cluster_id}/snapshots.
type Snapshot struct {
	// SnapshotID identifies the record: 64 hexadecimal digits, the SHA-256 of ProjectID,
	// ServiceID, PodID and SnapshotTimestamp, each preceded by its length in bytes as a
	// big-endian number of 64 bits.
	SnapshotID string `json:"snapshot_id"`
	// WorkspaceID is who pays. It is not part of the identity.
	WorkspaceID string `json:"workspace_id"`
	// ProjectID, Environment and ServiceID are the service of the pod.
	ProjectID   string `json:"project_id"`
	Environment string `json:"environment"`
	ServiceID   string `json:"service_id"`
	// PodID is the UID of the pod.
	PodID string `json:"pod_id"`
	// Tier is the label, for display.
	Tier string `json:"tier"`
	// Phase is that of the pod: Pending, Running, Succeeded, Failed or Unknown.
	Phase string `json:"phase"`
	// ClusterID is the cluster in the path.
	ClusterID string `json:"cluster_id"`
	// SnapshotTimestamp is the instant, RFC 3339 in UTC.
	SnapshotTimestamp string `json:"snapshot_timestamp"`
	// CPUMillis and MemoryBytes are what the pod requests, so that no price depends on
	// the tier. Zero: nothing, or unknown to the agent.
	CPUMillis   int64 `json:"cpu_millis"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// ID returns the identity of the record, 64 hexadecimal digits: the SHA-256 of
// ProjectID, ServiceID, PodID and SnapshotTimestamp, each preceded by its length in
// bytes as a big-endian number of 64 bits.
func (s *Snapshot) ID() string {
	return snapshot.ID(s.ProjectID, s.ServiceID, s.PodID, s.SnapshotTimestamp)
}

var podIDPattern = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// phases are those of Kubernetes.
func phases() []string { return []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"} }

// Validate returns when the record was taken, and what is wrong with it for that cluster
// at that time.
func (s *Snapshot) Validate(clusterID string, now time.Time) (taken time.Time, fields []FieldError) {
	var v violations
	v.match("workspace_id", s.WorkspaceID, uuidPattern, wantUUID)
	v.match("project_id", s.ProjectID, uuidPattern, wantUUID)
	v.environmentName(s.Environment)
	v.match("service_id", s.ServiceID, uuidPattern, wantUUID)
	v.match("pod_id", s.PodID, podIDPattern, "the UID of the pod, at most 64 characters of 0-9, A-Z, a-z and -")
	v.match("tier", s.Tier, tierPattern, "a label value: at most 63 characters of A-Z, a-z, 0-9, -, _ and ., first and last a letter or digit")
	v.require("phase", s.Phase, slices.Contains(phases(), s.Phase), "Pending, Running, Succeeded, Failed or Unknown")
	v.require("cluster_id", s.ClusterID, s.ClusterID == clusterID, "the cluster of the path")
	v.require("cpu_millis", s.CPUMillis, s.CPUMillis >= 0 && s.CPUMillis <= maxCPUMillis, fmt.Sprintf("0 to %d", maxCPUMillis))
	v.require(
		"memory_bytes",
		s.MemoryBytes,
		s.MemoryBytes >= 0 && s.MemoryBytes <= maxMemoryBytes,
		fmt.Sprintf("0 to %d", int64(maxMemoryBytes)),
	)
	before := len(v)
	taken = v.instant("snapshot_timestamp", s.SnapshotTimestamp, now, SnapshotMaxAge)
	// It is part of the identity: in another spelling, the instant would be another one.
	if spelled := taken.Format(time.RFC3339Nano); len(v) == before {
		v.require("snapshot_timestamp", s.SnapshotTimestamp, s.SnapshotTimestamp == spelled, spelled)
	}
	if len(v) == 0 {
		v.require("snapshot_id", s.SnapshotID, s.SnapshotID == s.ID(), "the identity of this record, "+s.ID())
	}
	return taken, v
}

// DecodeSnapshot reads one record. A member that this version does not know is left out: the
// agent may be newer. The customer_id of old is an error.
func DecodeSnapshot(text []byte) (s Snapshot, err error) {
	var old struct {
		CustomerID json.RawMessage `json:"customer_id"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, err
	}
	if bytes.Contains(text, []byte(`"customer_id"`)) && json.Unmarshal(text, &old) == nil && old.CustomerID != nil {
		return s, errors.New(`json: unknown field "customer_id"`)
	}
	return s, nil
}

// SnapshotBatch is the body of POST /api/v1/clusters/{cluster_id}/snapshots.
type SnapshotBatch struct {
	// Snapshots are at most [MaxSnapshots] records. Nil: the member is missing.
	Snapshots RawSnapshots `json:"snapshots"`
}

// RawSnapshots are records as they were sent, each to be read with [DecodeSnapshot], so
// that one that is bad does not hide the others.
type RawSnapshots []json.RawMessage

// ErrTooManySnapshots is a batch of more than [MaxSnapshots].
var ErrTooManySnapshots = errors.New("the batch has more than 5000 records, which do not fit")

// UnmarshalJSON implements [json.Unmarshaler]. It stops at the first record too many: a
// small text can stand for a large list.
func (s *RawSnapshots) UnmarshalJSON(data []byte) error {
	*s = nil
	if string(data) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		var list []json.RawMessage
		return inField("snapshots", json.Unmarshal(data, &list))
	}
	*s = RawSnapshots{}
	for decoder.More() {
		if len(*s) == MaxSnapshots {
			return ErrTooManySnapshots
		}
		var next json.RawMessage
		if err := decoder.Decode(&next); err != nil {
			return err
		}
		*s = append(*s, next)
	}
	return nil
}

// SnapshotReceipt is the answer to a batch: what became of each record.
type SnapshotReceipt struct {
	// Accepted is the number of records that were stored.
	Accepted int `json:"accepted"`
	// Duplicates is the number of records whose SnapshotID was stored before.
	Duplicates int `json:"duplicates"`
	// Rejected are the records that are wrong. Sending them again cannot help.
	Rejected []RejectedSnapshot `json:"rejected"`
}

// RejectedSnapshot is one record that is wrong.
type RejectedSnapshot struct {
	// SnapshotID is as it was sent. Empty: it could not be read.
	SnapshotID string `json:"snapshot_id"`
	// Reason names the place in the batch, the field, its value and what would be right.
	Reason string `json:"reason"`
}
