package statuspage

import (
	"context"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// source is where the sections come from.
type source struct {
	clusters   *clusters.Store
	regions    *regions.Store
	changes    *audit.Log
	directory  *directory
	streams    func(region string) int
	stateBytes func(clusterID string) int
	log        func(ctx context.Context) (regions.LogState, error)
	silence    time.Duration
	lifetime   time.Duration
}

// read reads the database once.
func (s *source) read(ctx context.Context) ([]section, error) {
	now := time.Now().UTC()
	clusterList, err := s.clusters.Overview(ctx, now.Add(-capacityWindow))
	if err != nil {
		return nil, err
	}
	regionList, err := s.regions.Overview(ctx)
	if err != nil {
		return nil, err
	}
	clusterRows, loads := make([]clusterRow, len(clusterList)), make([]load, len(clusterList))
	for i := range clusterList {
		size := 0
		if s.stateBytes != nil {
			size = s.stateBytes(clusterList[i].ClusterID)
		}
		clusterRows[i] = newClusterRow(&clusterList[i], size, now, s.silence, s.lifetime)
		loads[i] = newLoad(&clusterList[i], now)
	}
	regionRows := make([]regionRow, len(regionList))
	for i := range regionList {
		regionRows[i] = newRegionRow(&regionList[i], now, s.lifetime)
		if s.streams != nil {
			regionRows[i].HasStreams, regionRows[i].Streams = true, s.streams(regionList[i].Scope)
		}
	}
	slices.SortStableFunc(clusterRows, func(a, b clusterRow) int { return worst(a.State, b.State) })
	slices.SortStableFunc(regionRows, func(a, b regionRow) int { return worst(a.State, b.State) })
	entries, _, err := s.changes.List(ctx, audit.Filter{Log: audit.Changes}, maxSought)
	if err != nil {
		return nil, err
	}
	changes, err := s.directory.named(ctx, entries)
	if err != nil {
		return nil, err
	}
	sections := []section{
		{name: "summary", model: summarize(clusterRows, regionRows)},
		{name: "clusters", model: clusterRows},
		{name: "capacity", model: loads},
		{name: "regions", model: regionRows},
	}
	if s.log != nil {
		state, err := s.log(ctx)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section{name: "log", model: newLogLine(state)})
	}
	return append(sections, section{name: "changes", model: changes}), nil
}
