package starbase

import (
	"fmt"
	"time"
)

const (
	// maxPods is the largest number of pods that can be meant.
	maxPods = 1_000_000
	// maxAhead is how much the clock of an agent may be ahead.
	maxAhead = 5 * time.Minute
	// CapacityRetention is how old a capacity report may be, and how long one
	// is kept.
	CapacityRetention = 48 * time.Hour
)

// CapacityReport is how full a cluster is: the body of
// POST /api/v1/clusters/{cluster_id}/capacity. All fields are required, which
// is why they are pointers where zero means something.
type CapacityReport struct {
	// ClusterID is the cluster in the path.
	ClusterID string `json:"cluster_id"`
	// CurrentPodCount is the number of customer pods, in whatever phase.
	CurrentPodCount *int64 `json:"current_pod_count"`
	// SoftLimit is the number of pods that the cluster is meant for.
	SoftLimit *int64 `json:"soft_limit"`
	// Timestamp is when the pods were counted, RFC 3339 in UTC.
	Timestamp string `json:"timestamp"`
}

// Validate returns when the pods were counted, and what is wrong with the
// report for that cluster at that time.
func (r *CapacityReport) Validate(clusterID string, now time.Time) (taken time.Time, fields []FieldError) {
	var v violations
	v.require("cluster_id", r.ClusterID, r.ClusterID == clusterID, "the cluster of the path")
	v.pods("current_pod_count", r.CurrentPodCount)
	v.pods("soft_limit", r.SoftLimit)
	taken = v.instant("timestamp", r.Timestamp, now, CapacityRetention)
	return taken, v
}

// instant reads a time that is not ahead of now, but for a difference of the clocks, and
// not older than maxAge.
func (v *violations) instant(field, text string, now time.Time, maxAge time.Duration) time.Time {
	taken, err := time.Parse(time.RFC3339, text)
	_, offset := taken.Zone()
	valid := err == nil && offset == 0
	v.require(field, text, valid, "a time of RFC 3339 in UTC, like 2026-01-02T15:04:05Z")
	if valid {
		v.require(field, text, !taken.After(now.Add(maxAhead)), "no more than 5 minutes ahead of the control plane's clock")
		v.require(field, text, !taken.Before(now.Add(-maxAge)), fmt.Sprintf("no more than %.0f hours ago", maxAge.Hours()))
	}
	return taken.UTC()
}

func (v *violations) pods(field string, n *int64) {
	const want = "0 to 1000000"
	if n == nil {
		v.add(field, "missing", want)
		return
	}
	v.require(field, *n, *n >= 0 && *n <= maxPods, want)
}
