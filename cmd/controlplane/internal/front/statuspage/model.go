package statuspage

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// state is how something is, in a word, with the kind that decides its colour
// and its sign: good, busy, bad or idle.
type state struct{ Word, Kind string }

// count is how many are in a state.
type count struct {
	state
	N int
}

// states are the standings and statuses in the order in which they are shown.
var states = []state{ //nolint:gochecknoglobals // a table, never written to
	{"Healthy", "good"},
	{"running", "good"},
	{"healthy", "good"},
	{"Progressing", "busy"},
	{"Applying", "busy"},
	{"Pending", "busy"},
	{"pending", "busy"},
	{"paused", "idle"},
	{"inactive", "idle"},
	{"Unknown", "idle"},
	{"unknown", "idle"},
	{"Failed", "bad"},
	{"Rejected", "bad"},
	{"failed", "bad"},
	{"unhealthy", "bad"},
}

// counts returns the counts that are not zero, in the order of states.
func counts[K ~string](of map[K]int) (list []count) {
	for _, s := range states {
		if n := of[K(s.Word)]; n > 0 {
			list = append(list, count{state{strings.ToLower(s.Word), s.Kind}, n})
		}
	}
	return list
}

// figure is a number that may be unknown.
type figure struct {
	Known bool
	N     int64
}

// note is a service that needs a look.
type note struct {
	state
	// Identity is project, environment and service as people call them, IDs the same by
	// their ids.
	Identity, IDs, Class, Message string
	// Path is where its own page is.
	Path string
}

// hold is what an agent holds until a person approves it.
type hold struct {
	problem
	// Path is the page of the cluster or region.
	Path, First, Reason string
	Count               int
	Units               []heldUnit
	// Digest names exactly what is held. By has approved it, at At; empty: not approved, or it
	// is not known by whom. AskedBy has asked for it, and another administrator must ask for the
	// same until Until.
	Digest, By, AskedBy string
	At, Until           time.Time
}

// heldUnit is a unit whose deletion is held.
type heldUnit struct {
	Name, Reason string
	Objects      int
}

// newHold returns nil if nothing is held by the agent of a cluster or region.
func newHold(kind, id string, h *starbase.HeldDeletions, approvedDigest string) *hold {
	if h == nil {
		return nil
	}
	is := &hold{
		problem: heldDeletions(kind, id, h, approvedDigest),
		Path:    Path + "/" + kind + "s/" + url.PathEscape(id), Count: h.Count, Digest: clean(h.Digest),
	}
	for _, u := range h.Units {
		is.Units = append(is.Units, heldUnit{clean(u.Unit), clean(u.Reason), u.Objects})
	}
	if len(is.Units) > 0 {
		is.First, is.Reason = is.Units[0].Name, is.Units[0].Reason
	}
	return is
}

// maxNotes is how many notes of a cluster are shown.
const maxNotes = 20

// clusterRow is a row of the table of clusters.
type clusterRow struct {
	ID, Region string
	State      state
	// Wanted is the generation that is served; Pulled and Reported are those
	// that the agent fetched and reported on last, if of the same epoch.
	Wanted           int64
	Pulled, Reported figure
	// Lag is how many generations the agent's last report is behind.
	Lag                figure
	PulledAt, ReportAt time.Time
	// Desired counts the services that are wanted, Standings the same by where
	// they stand.
	Desired   int
	Standings []count
	// Rejected and Held count services; Deleting are deleted and without a report
	// since; Orphans are reported and unknown here.
	Rejected, Held, Deleting, Orphans int
	Notes                             []note
	MoreNotes                         int
	// Hold is what waits for an approval; nil for nothing.
	Hold *hold
	// Path is where its own page is.
	Path string
}

func newClusterRow(c *clusters.ClusterOverview, size int, now time.Time, silence, lifetime time.Duration) clusterRow {
	row := clusterRow{ID: c.ClusterID, Region: c.Region, Wanted: c.Generation, PulledAt: c.LastPullAt, ReportAt: c.LastReportAt}
	row.Hold = newHold(audit.KindCluster, c.ClusterID, c.HeldDeletions, c.ApprovedDeletions)
	row.Path = clustersPath + "/" + url.PathEscape(c.ClusterID)
	row.Pulled = pulledGeneration(&c.Cluster)
	if c.ReportedGeneration > 0 && c.ReportedEpoch == c.Epoch {
		row.Reported = figure{true, c.ReportedGeneration}
		row.Lag = figure{true, c.Generation - c.ReportedGeneration}
	}
	facts := clusterFacts{Health: clusters.Health{Cluster: c.Cluster, Latest: c.Latest}, Bytes: size, Lifetime: lifetime}
	facts.Failing = row.countServices(c, now)
	facts.Held = row.Held
	row.State = worstOf(facts.problems(now, silence), inStep).state
	return row
}

// pulledGeneration is the generation of the current epoch that the agent has fetched last.
func pulledGeneration(c *clusters.Cluster) figure {
	epoch, generation, ok := strings.Cut(c.LastPullVersion, "-")
	if !ok || epoch != c.Epoch {
		return figure{}
	}
	generation, _, _ = strings.Cut(generation, ".") // from the nonce
	n, err := strconv.ParseInt(generation, 10, 64)
	return figure{err == nil, n}
}

// countServices sets the counts of services and returns how many fail or make no progress.
func (row *clusterRow) countServices(c *clusters.ClusterOverview, now time.Time) (failing int) {
	standings, stuck := map[clusters.Standing]int{}, 0
	for i := range c.Services {
		s := &c.Services[i]
		unsaid := s.Standing == clusters.StandingPending || s.Standing == clusters.StandingUnknown
		mentioned := state{strings.ToLower(string(s.Phase)), "bad"}
		switch {
		case s.WantedGeneration == 0:
			row.Orphans++
			row.note(state{"not wanted", "busy"}, s)
		case s.Deleted && (unsaid || s.ErrorClass == starbase.ClassUnseen):
			row.Deleting++
		case s.Deleted && s.Standing != clusters.StandingDeleted:
			row.Held++
			row.note(state{"deletion held", "busy"}, s)
		case s.Deleted:
		default:
			row.Desired++
			if is, _ := standingOf(s, c.Epoch, now); is.Word == noProgress.Word {
				stuck++
				row.note(noProgress, s)
				continue
			}
			standings[s.Standing]++
			rejected := s.Standing == clusters.Standing(starbase.PhaseRejected)
			if rejected {
				row.Rejected++
			}
			if rejected || s.Standing == clusters.Standing(starbase.PhaseFailed) {
				failing++
				row.note(mentioned, s)
			}
		}
	}
	row.Standings = counts(standings)
	if stuck > 0 {
		row.Standings = append(row.Standings, count{noProgress, stuck})
	}
	return failing + stuck
}

func (row *clusterRow) note(is state, s *clusters.ServiceState) {
	if len(row.Notes) == maxNotes {
		row.MoreNotes++
		return
	}
	row.Notes = append(row.Notes, note{
		state: is, Identity: clean(cmp.Or(s.ProjectSlug, s.ProjectID) + " / " + s.Environment + " / " + cmp.Or(s.ServiceName, s.ServiceID)),
		IDs:   clean(s.ProjectID + " / " + s.Environment + " / " + s.ServiceID),
		Class: clean(s.ErrorClass), Message: clean(s.Message), Path: pathOf(s.Identity()),
	})
}

// regionRow is a row of the table of regions.
type regionRow struct {
	ID, Name, Platform, Cell string
	State                    state
	HeartbeatAt              time.Time
	Head, Applied, Lag       figure
	HasStreams               bool
	Streams                  int
	Deployments, Sentinels   int
	Instances, Health        []count
	// Failed are failed instances, and MoreFailed counts those that are not shown.
	Failed     []failedInstance
	MoreFailed int
	// Unhealthy are sentinels, and MoreUnhealthy counts those that are not shown.
	Unhealthy     []unhealthySentinel
	MoreUnhealthy int
	// Reason is why agents of the region are refused. Empty: they are not.
	Reason string
	// Hold is what waits for an approval; nil for nothing.
	Hold *hold
	// Path is where its own page is.
	Path string
}

// unhealthySentinel is a sentinel that should run and is unhealthy.
type unhealthySentinel struct {
	Name      string
	Available int64
}

// failedInstance is an instance that crashes.
type failedInstance struct {
	Name, Reason string
	Restarts     int64
}

func newRegionRow(r *regions.RegionOverview, now time.Time, lifetime time.Duration) regionRow {
	row := regionRow{
		ID: r.ID, Name: r.Scope, Platform: r.Platform, Cell: clean(r.CellID), HeartbeatAt: r.HeartbeatAt,
		Head:        figure{r.Known, int64(r.Head)}, //nolint:gosec // a version counts from 1
		Deployments: r.Deployments, Sentinels: r.Sentinels, Instances: counts(r.Instances), Health: counts(r.Health),
		Hold: newHold(audit.KindRegion, r.ID, r.HeldDeletions, r.ApprovedDeletions), Path: regionsPath + "/" + url.PathEscape(r.ID),
	}
	for _, i := range r.Failed {
		row.Failed = append(row.Failed, failedInstance{clean(i.Name), clean(i.Reason), i.Restarts})
	}
	row.MoreFailed = max(0, r.Instances["failed"]-len(row.Failed))
	for i := range r.Unhealthy {
		row.Unhealthy = append(
			row.Unhealthy,
			unhealthySentinel{clean(r.Unhealthy[i].Namespace + "/" + r.Unhealthy[i].Name), r.Unhealthy[i].AvailableReplicas},
		)
	}
	row.MoreUnhealthy = max(0, r.Health["unhealthy"]-len(row.Unhealthy))
	if r.Known && r.Reported {
		row.Applied = figure{true, int64(r.Applied)}                //nolint:gosec // as above
		row.Lag = figure{true, max(0, row.Head.N-int64(r.Applied))} //nolint:gosec // as above
	}
	health := regions.Health{
		Region: r.Region, Known: r.Known, Head: r.Head, Reported: r.Reported, Applied: r.Applied,
		Failed: r.Instances["failed"], Unhealthy: r.Health["unhealthy"],
	}
	row.State = worstOf(regionProblems(&health, now, lifetime), alive).state
	if !r.Known && !r.Silent && !r.HeartbeatAt.IsZero() {
		row.Reason = "its log was made for another region, or cannot be read yet; put the region with replace to give it the log"
	}
	return row
}

// logLine is the line about the change log of the regions.
type logLine struct {
	State state
	// NotReady is the reason in /readyz. Empty: the log is ready.
	NotReady string
	// Depth counts the changes that wait for a version, the oldest for Seconds.
	Depth   int
	Seconds int64
	// Epochs counts the changes of an epoch, the last at EpochAt.
	Epochs  int
	EpochAt time.Time
}

// slow is the age of the oldest change in the queue from which the log is behind.
const slow = 2 * time.Second

func newLogLine(s regions.LogState) logLine {
	line := logLine{
		State: state{"ready", "good"}, NotReady: clean(s.NotReady),
		Depth: s.Depth, Seconds: int64(s.Oldest / time.Second), Epochs: s.Epochs, EpochAt: s.EpochAt,
	}
	switch {
	case s.NotReady != "":
		line.State = state{"not ready", "bad"}
	case s.Depth > 0 && s.Oldest >= slow:
		line.State = state{"behind", "busy"}
	}
	return line
}

// summary is the line above the tables.
type summary struct {
	Clusters, Regions   int
	Services, Instances int
	// Each has its states, counted.
	ClusterStates, RegionStates, ServiceStates, InstanceStates []count
	// Held counts the deletions that are held.
	Held int
	// StaleSince is when the database was read last, if it cannot be read now.
	StaleSince time.Time
}

func summarize(clusters []clusterRow, regions []regionRow) summary {
	s := summary{Clusters: len(clusters), Regions: len(regions)}
	for i := range clusters {
		s.Held += clusters[i].Held
		s.Services += clusters[i].Desired
		s.ClusterStates = add(s.ClusterStates, count{clusters[i].State, 1})
		s.ServiceStates = add(s.ServiceStates, clusters[i].Standings...)
	}
	for i := range regions {
		s.RegionStates = add(s.RegionStates, count{regions[i].State, 1})
		s.InstanceStates = add(s.InstanceStates, regions[i].Instances...)
		for _, c := range regions[i].Instances {
			s.Instances += c.N
		}
	}
	for _, list := range [][]count{s.ClusterStates, s.RegionStates, s.ServiceStates, s.InstanceStates} {
		slices.SortStableFunc(list, func(a, b count) int {
			return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Word, b.Word))
		})
	}
	return s
}

// rank is the place of a kind in a list.
func rank(kind string) int { return slices.Index([]string{"bad", "busy", "idle", "good"}, kind) }

// add adds counts of the same state up.
func add(sum []count, more ...count) []count {
next:
	for _, m := range more {
		for i := range sum {
			if sum[i].state == m.state {
				sum[i].N += m.N
				continue next
			}
		}
		sum = append(sum, m)
	}
	return sum
}

// clean replaces what could steer a terminal or the direction of text, and
// whatever is not UTF-8.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ', r >= 0x7f && r < 0xa0, // control
			r == 0x061c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff: // format
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
