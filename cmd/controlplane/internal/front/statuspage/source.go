package statuspage

import (
	"context"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// maxChanges is how many of the last changes are shown.
const maxChanges = 20

// source is where the sections come from.
type source struct {
	database *db.Database
	streams  func(region string) int
	log      func(ctx context.Context) (regions.LogState, error)
	silence  time.Duration
}

// read reads the database once.
func (s *source) read(ctx context.Context) ([]section, error) {
	now := time.Now().UTC()
	// The window moves by whole steps, so that the plot stays the same between.
	end := now.Truncate(plotStep).Add(plotStep)
	clusterList, err := (&clusters.Store{Database: s.database}).Overview(ctx, end.Add(-plotWindow), plotStep)
	if err != nil {
		return nil, err
	}
	regionList, err := (&regions.Store{Database: s.database}).Overview(ctx)
	if err != nil {
		return nil, err
	}
	clusterRows := make([]clusterRow, len(clusterList))
	plots, records := make([]plot, len(clusterList)), make([]minutes, len(clusterList))
	for i := range clusterList {
		clusterRows[i] = newClusterRow(&clusterList[i], now, s.silence)
		plots[i], records[i] = newPlot(&clusterList[i], end), newMinutes(&clusterList[i], now)
	}
	regionRows := make([]regionRow, len(regionList))
	for i := range regionList {
		regionRows[i] = newRegionRow(&regionList[i])
		if s.streams != nil {
			regionRows[i].HasStreams, regionRows[i].Streams = true, s.streams(regionList[i].Scope)
		}
	}
	slices.SortStableFunc(clusterRows, func(a, b clusterRow) int { return worst(a.State, b.State) })
	slices.SortStableFunc(regionRows, func(a, b regionRow) int { return worst(a.State, b.State) })
	changes, _, err := (&audit.Log{Database: s.database}).List(ctx, audit.Filter{Log: audit.Changes}, maxChanges)
	if err != nil {
		return nil, err
	}
	sections := []section{
		{name: "summary", model: summarize(clusterRows, regionRows)},
		{name: "clusters", model: clusterRows},
		{name: "capacity", model: plots},
		{name: "snapshots", model: records},
		{name: "regions", model: regionRows},
	}
	if s.log != nil {
		state, err := s.log(ctx)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section{name: "log", model: newLogLine(state)})
	}
	for i := range changes {
		changes[i].Name = clean(changes[i].Name)
	}
	return append(sections, section{name: "changes", model: changes}), nil
}
