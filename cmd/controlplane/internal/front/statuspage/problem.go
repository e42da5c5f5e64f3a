package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// problem is what is wrong with a cluster or a region.
type problem struct {
	state
	// Since is since when it is so; zero: the database does not know it.
	Since time.Time
	// Why says what was seen, and Next what a person can do. Command is the command to type.
	// Empty: there is none.
	Why, Next, Command string
}

// The states of clusters and regions.
//
//nolint:gochecknoglobals // never written to
var (
	tokenEnded     = state{"token ended", "bad"}
	silent         = state{"silent", "bad"}
	noReport       = state{"no report", "bad"}
	refused        = state{"refused", "bad"}
	failed         = state{"error", "bad"}
	failing        = state{"failing", "bad"}
	full           = state{"full", "bad"}
	tokenEnding    = state{"token ends", "busy"}
	held           = state{"held", "busy"}
	approved       = state{"approved", "busy"}
	nearlyFull     = state{"nearly full", "busy"}
	nearlyTooLarge = state{"nearly too large", "busy"}
	unknownVersion = state{"unknown version", "busy"}
	behind         = state{"behind", "busy"}
	neverSeen      = state{"never seen", "idle"}
	inStep         = state{"in step", "good"}
	alive          = state{"alive", "good"}
)

// severities are the states of clusters and regions, the worst first.
var severities = []state{ //nolint:gochecknoglobals // never written to
	tokenEnded, silent, noReport, refused, failed, failing, full,
	tokenEnding, held, approved, nearlyFull, nearlyTooLarge, unknownVersion, behind, neverSeen, inStep, alive,
}

// severity is the place of a state among severities.
func severity(s state) int { return slices.Index(severities, s) }

// reportDeadline is how long the agent of a cluster may send no report: it sends one each five
// minutes, whether there is news or not.
const reportDeadline = 11 * time.Minute

// clusterFacts are what shows whether a cluster is well.
type clusterFacts struct {
	clusters.Health
	// Bytes is the size of the state that was served last. Zero: unknown.
	Bytes int
	// Lifetime is [Config.TokenLifetime].
	Lifetime time.Duration
}

// token returns the token of the agent of the cluster, nil if tokens have no end.
func (f *clusterFacts) token(now time.Time) *agentToken {
	return newAgentToken(audit.KindCluster, f.ClusterID, f.TokenUntil, now, f.Lifetime)
}

// problems returns what is wrong with a cluster, the worst first; nothing if it is in step.
func (f *clusterFacts) problems(now time.Time, silence time.Duration) (list []problem) {
	contact := f.Contact()
	add := func(p problem) { list = append(list, p) }
	if p, ok := f.token(now).problem(contact, now, f.Lifetime); ok {
		add(p)
	}
	if contact.IsZero() {
		return append(list, problem{
			state: neverSeen, Since: f.CreatedAt, Why: "No agent has asked for the state of the cluster since it was registered.",
			Next:    "Start the agent with the token that the registration has answered. Lost? Make another one, which ends the old one:",
			Command: "controlplane rotate cluster " + f.ClusterID,
		})
	}
	if now.Sub(contact) >= silence {
		add(problem{
			state: silent, Since: contact, Why: "The agent neither asks nor reports.",
			Next:    "What runs in the cluster goes on. Look at the agent there, and at the way to the control plane:",
			Command: "kubectl logs -n starform-system deployment/shuttle",
		})
	} else if at := f.LastReportAt; !at.IsZero() && now.Sub(at) >= reportDeadline {
		add(problem{
			state: noReport, Since: at, Why: "The agent asks for the state and does not report.",
			Next: "Look at what its log says about reports:", Command: "kubectl logs -n starform-system deployment/shuttle",
		})
	}
	if f.ReportedErrorClass != "" {
		add(problem{
			state: failed, Why: clean(f.ReportedErrorClass + ": " + f.ReportedMessage), Next: nextOfCluster(f.ReportedErrorClass),
		})
	}
	if n := f.Failing + f.Stuck; n > 0 {
		add(problem{
			state: failing, Since: f.Since, Why: plural(n, "service has failed or makes no progress.", "services have failed or make no progress."),
			Next: "Look at each of them below: its page says why, and what to do.",
		})
	}
	f.heldProblem(add)
	f.sizeProblems(add)
	f.versionProblems(add)
	slices.SortStableFunc(list, func(a, b problem) int { return cmp.Compare(severity(a.state), severity(b.state)) })
	return list
}

// nextOfCluster returns what a person can do about what keeps a cluster from being as it is wanted.
func nextOfCluster(class string) string {
	switch class {
	case starbase.ClassUnseen:
		return "The agent cannot see the cluster: look at its API server. The live state is not known meanwhile, so what is below may be old."
	case starbase.ClassStateNotRecorded, starbase.ClassDeletionsNotRecorded:
		return "See to the ConfigMap that the message names, as the runbook Deletions are held says; the agent tries again by itself."
	case starbase.ClassStateRefused:
		return "Are two control planes behind one address, or was an older backup restored? See the runbook Restore."
	case starbase.ClassLeftover:
		return "Move or delete what the message names; the agent tries again by itself."
	}
	return "The configuration of the cluster is not in effect: the message says why, and the agent tries again by itself."
}

// heldProblem adds the deletions that wait for something.
func (f *clusterFacts) heldProblem(add func(problem)) {
	switch h := f.HeldDeletions; {
	case h != nil:
		add(heldDeletions("cluster", f.ClusterID, h, f.ApprovedDeletions))
	case f.Held > 0:
		add(problem{
			state: held, Why: plural(f.Held, "deleted service is still there.", "deleted services are still there."),
			Next: "The message of each says why, and the next report of the agent whether it is gone.",
		})
	}
}

// sizeProblems adds what is near its limit.
func (f *clusterFacts) sizeProblems(add func(problem)) {
	if f.Latest != nil {
		if percent, is := fullness(f.Latest.Pods, f.Latest.SoftLimit); is == full || is == nearlyFull {
			add(problem{
				state: is, Why: fmt.Sprintf("%s of %s pods, %d %%.", number(f.Latest.Pods), number(f.Latest.SoftLimit), percent),
				Next: "Build the next cluster, and put new projects there. Nothing stops new pods in this one.",
			})
		}
	}
	const whole = 100
	if percent := f.Bytes * whole / starbase.MaxBody; percent >= nearPercent {
		add(problem{
			state: nearlyTooLarge,
			Why:   fmt.Sprintf("The desired state has %s of %s bytes, %d %%.", number(int64(f.Bytes)), number(starbase.MaxBody), percent),
			Next:  "Put new projects in another cluster: above the limit the agent gets no state, and what runs stays as it is.",
		})
	}
}

// versionProblems adds what the agent does not have yet.
func (f *clusterFacts) versionProblems(add func(problem)) {
	switch pulled := pulledGeneration(&f.Cluster); {
	case f.LastPullVersion != "" && (!pulled.Known || pulled.N > f.Generation):
		add(problem{
			state: unknownVersion, Why: "The agent has version " + clean(f.LastPullVersion) + ", which this database does not have.",
			Next: "Nothing, if the database was just restored or the epoch is new: the agent takes over the state at its next pull. " +
				"See the runbook Restore.",
		})
	case f.ReportedEpoch != f.Epoch, f.ReportedGeneration < f.Generation, pulled.N < f.Generation:
		add(problem{
			state: behind, Why: "The agent has not reported on the newest generation.",
			Next: "Nothing yet: it asks each half minute, and reports once it has applied the state.",
		})
	}
}

// heldDeletions is what an agent holds until a person approves it.
func heldDeletions(kind, id string, h *starbase.HeldDeletions, approvedDigest string) problem {
	what := plural(h.Count, "deletion is held", "deletions are held")
	if h.Digest == approvedDigest {
		return problem{
			state: approved, Why: what + ", and approved.",
			Next: "Nothing: the agent deletes exactly these at its next pull or heartbeat, and its report ends this.",
		}
	}
	return problem{
		state: held, Why: what + " until a person approves exactly these.",
		Next:    "Look at what is held below. If all of it is to go, approve it; if not, state again what must stay:",
		Command: program.CommandLine("controlplane approve", kind, id, h.Digest),
	}
}

// regionProblems returns what is wrong with a region, the worst first; nothing if it is alive.
func regionProblems(r *regions.Health, now time.Time, lifetime time.Duration) (list []problem) {
	token := newAgentToken(audit.KindRegion, r.ID, r.TokenUntil, now, lifetime)
	if p, ok := token.problem(r.HeartbeatAt, now, lifetime); ok {
		list = append(list, p)
	}
	if r.HeartbeatAt.IsZero() {
		return append(list, problem{
			state: neverSeen, Since: r.CreatedAt, Why: "No agent has sent a heartbeat since the region was registered.",
			Next:    "Start the agent with the token that the registration has answered. Lost? Make another one, which ends the old one:",
			Command: program.CommandLine("controlplane rotate", "region", r.ID),
		})
	}
	if r.Silent {
		list = append(list, problem{
			state: silent, Since: r.HeartbeatAt, Why: "The agent sends no heartbeat.",
			Next:    "What runs in the region goes on. Look at the agent there, and at the way to the control plane:",
			Command: "kubectl logs -n krane-system deployment/krane",
		})
	}
	if !r.Known {
		list = append(list, problem{
			state: refused, Why: "Its log was made for another region, or cannot be read yet.",
			Next: "If that region is gone for good, put this one with replace to give it the log: its agent lists everything again.",
		})
	}
	if n := r.Failed + r.Unhealthy; n > 0 {
		var parts []string
		if r.Failed > 0 {
			parts = append(parts, plural(r.Failed, "instance has failed", "instances have failed"))
		}
		if r.Unhealthy > 0 {
			parts = append(parts, plural(r.Unhealthy, "sentinel is unhealthy", "sentinels are unhealthy"))
		}
		list = append(list, problem{
			state: failing, Why: strings.Join(parts, ", ") + ".",
			Next: "Look at each of them below, and at the log of its containers in the region.",
		})
	}
	list = append(list, cannot(r)...)
	if r.HeldDeletions != nil {
		list = append(list, heldDeletions("region", r.ID, r.HeldDeletions, r.ApprovedDeletions))
	}
	if r.Known && r.Reported && r.Applied < r.Head {
		list = append(list, problem{
			state: behind, Why: plural(int(r.Head-r.Applied), "change is not applied.", "changes are not applied."), //nolint:gosec // a small number
			Next: "Nothing, if it gets less: the agent applies the changes as they come. Else look at its log.",
		})
	}
	slices.SortStableFunc(list, func(a, b problem) int { return cmp.Compare(severity(a.state), severity(b.state)) })
	return list
}

// cannot returns what the agent of a region has reported that it cannot do, the first of them one by one.
func cannot(r *regions.Health) (list []problem) {
	const shown = 5
	for i, p := range r.Problems {
		if i == shown {
			return append(list, problem{
				state: failing, Why: "The agent reports " + number(int64(len(r.Problems)-shown)) + " more.", Next: "Read all of them:",
				Command: program.CommandLine("controlplane get -o json", "region", r.ID),
			})
		}
		list = append(list, problem{
			state: failing, Why: clean(p.Resource) + ": " + clean(p.Message),
			Next: "The agent tries again with each list. Repair what the message names, or state the resource in another way.",
		})
	}
	return list
}

// worstOf returns the first problem, or well if there is none.
func worstOf(list []problem, well state) problem {
	if len(list) == 0 {
		return problem{state: well}
	}
	return list[0]
}

// plural writes a number before what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(int64(n)) + " " + many
}
