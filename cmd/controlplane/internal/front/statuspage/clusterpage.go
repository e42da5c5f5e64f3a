package statuspage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/second"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

// shownServices is how many services the page of a cluster has.
const shownServices = 50

// clusterDocument is what the template cluster shows.
type clusterDocument struct {
	Now       time.Time
	CanLogout bool
	Place     placeRow
	Cluster   clusters.Cluster
	// Pulled is the generation that the agent has fetched last.
	Pulled figure
	// Instance is the agent process that reported last. Empty: unknown.
	Instance string
	Latest   *clusters.CapacityPoint
	// Bytes is the size of the desired state that was served last. Zero: unknown.
	Bytes    int64
	MaxBytes int64
	Hold     *hold
	// Token is the token of the agent. Nil: tokens have no end.
	Token *agentToken
	// Services are the first, and MoreServices counts the others.
	Services     []serviceRow
	States       []count
	MoreServices int
	Changes      []change
}

// List is the place of the document in the navigation.
func (clusterDocument) List() string { return "clusters" }

// cluster shows one cluster: how it is, since when, why, what comes next, and its services.
func (p *Page) cluster(w http.ResponseWriter, r *http.Request, who visitor) {
	id := r.PathValue("cluster")
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	document, err := p.clusterDocument(ctx, id)
	switch {
	case errors.Is(err, clusters.ErrUnknownCluster):
		p.render(w, r, http.StatusNotFound, "missing", missing{"cluster", clustersPath})
		return
	case err != nil:
		p.fail(w, r, "cluster", err)
		return
	}
	document.CanLogout = who.sessionID != ""
	p.render(w, r, http.StatusOK, "cluster", document)
}

func (p *Page) clusterDocument(ctx context.Context, id string) (document clusterDocument, err error) {
	if !starbase.ValidUUID(id) {
		return clusterDocument{}, clusters.ErrUnknownCluster
	}
	overview, err := p.clusters.Detail(ctx, id)
	if err != nil {
		return clusterDocument{}, err
	}
	now := time.Now().UTC()
	health := clusters.Health{Cluster: overview.Cluster, Latest: overview.Latest}
	document = clusterDocument{
		Now: now, Cluster: overview.Cluster, Latest: overview.Latest, Pulled: pulledGeneration(&overview.Cluster), MaxBytes: starbase.MaxBody,
		Hold: newHold(audit.KindCluster, id, overview.HeldDeletions, overview.ApprovedDeletions),
	}
	document.Cluster.Region = clean(overview.Region)
	document.Cluster.LastPullVersion, document.Cluster.ReportedEpoch = clean(overview.LastPullVersion), clean(overview.ReportedEpoch)
	document.countServices(&overview, &health, now, p.silence)
	facts := p.facts(health)
	document.Bytes, document.Token = int64(facts.Bytes), facts.token(now)
	rows := []placeRow{newPlaceRow("clusters", overview.Region, id, facts.problems(now, p.silence), inStep)}
	if err := p.fullSince(ctx, rows); err != nil {
		return clusterDocument{}, err
	}
	document.Place = rows[0]
	if overview.HeldDeletions != nil {
		if err := p.approval(ctx, document.Hold, audit.KindCluster, id, overview.HeldDeletions.Digest); err != nil {
			return clusterDocument{}, err
		}
	}
	document.Changes, err = p.changesOf(ctx, audit.Filter{Kind: audit.KindCluster, Name: id})
	return document, err
}

// countServices sets the services that are shown, and what of the health they decide.
func (d *clusterDocument) countServices(c *clusters.ClusterOverview, health *clusters.Health, now time.Time, silence time.Duration) {
	var newest time.Time
	undated := false
	for i := range c.Services {
		s := &c.Services[i]
		if s.ReportedAt.After(newest) {
			newest, d.Instance = s.ReportedAt, clean(s.InstanceID)
		}
		is, since := standingOf(s, c.Epoch, now)
		switch {
		case is.Word == "deletion held":
			health.Held++
		case is.Kind == "bad" && !s.Deleted:
			health.Failing++
			undated = undated || since.IsZero()
			if health.Since.IsZero() || since.Before(health.Since) {
				health.Since = since
			}
		}
		row := newServiceRow(&c.Cluster, s, now, silence)
		d.Services = append(d.Services, row)
		d.States = add(d.States, count{row.State, 1})
	}
	if undated {
		health.Since = time.Time{}
	}
	sortServices(d.Services)
	sortCounts(d.States)
	if more := len(d.Services) - shownServices; more > 0 {
		d.Services, d.MoreServices = d.Services[:shownServices], more
	}
}

// approval sets who has approved what the agent of a cluster or region holds, or has asked for it.
func (p *Page) approval(ctx context.Context, h *hold, kind, id, digest string) (err error) {
	if h.state == approved {
		entries, _, err := p.changes.List(ctx, audit.Filter{Log: audit.Changes, Kind: kind, Name: id, Verb: adminapi.ActionApprove}, 1)
		if len(entries) > 0 {
			h.By, h.At = clean(entries[0].Actor), entries[0].At
		}
		return err
	}
	path := adminapi.Prefix + kind + "s/" + id + "/" + adminapi.ActionApprove
	h.AskedBy, h.Until, err = second.Waiting(ctx, p.database, path, agents.Approval{Digest: digest})
	h.AskedBy = clean(h.AskedBy)
	return err
}

// missing is what the template missing shows: what is not there, and the list of all.
type missing struct{ What, List string }

// sortServices orders services: what needs a look first, and of those that are alike what has
// been so for longest.
func sortServices(rows []serviceRow) {
	slices.SortStableFunc(rows, func(a, b serviceRow) int {
		return cmp.Or(
			worst(a.State, b.State), cmp.Compare(a.State.Word, b.State.Word), a.Since.Compare(b.Since), cmp.Compare(a.Identity, b.Identity),
		)
	})
}

// sortCounts orders counts as the states of [sortServices].
func sortCounts(list []count) {
	slices.SortStableFunc(list, func(a, b count) int { return cmp.Or(worst(a.state, b.state), cmp.Compare(a.Word, b.Word)) })
}
