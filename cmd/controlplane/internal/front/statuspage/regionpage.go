package statuspage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// shownObjects is how many deployments, sentinels and policies each the page of a region has.
const shownObjects = 50

// objectRow is a deployment, sentinel or policy of a region.
type objectRow struct {
	Kind, ID, Name string
	// Wanted is the desired state.
	Wanted string
	State  state
	// Instances counts the instances of a deployment by status.
	Instances []count
	// Why is about the first instance that has failed, the replicas of a sentinel, or why it is not applied.
	Why string
}

// kindOf returns what one object of a collection is called.
func kindOf(collection string) string {
	for kind, name := range collections {
		if name == collection {
			return kind
		}
	}
	return collection
}

// newObjectRow returns the row of a resource. why is why the agent cannot apply it, empty for nothing.
func newObjectRow(r *regions.Resource, isSilent bool, why string) objectRow {
	row := objectRow{
		Kind: kindOf(r.Collection), ID: clean(r.ID),
		Name: clean(r.Namespace + "/" + r.Name), Wanted: clean(r.DesiredState), State: state{"wanted", "good"},
	}
	byStatus := map[string]int{}
	for i := range r.Instances {
		byStatus[r.Instances[i].Status]++
		if r.Instances[i].Status == "failed" && row.Why == "" {
			row.Why = clean(r.Instances[i].Name + ": " + r.Instances[i].Reason)
		}
	}
	row.Instances = counts(byStatus)
	switch {
	case byStatus["failed"] > 0:
		row.State = state{"failed", "bad"}
	case isSilent:
		row.State = state{"unknown", "idle"}
	case why != "":
		row.State, row.Why = state{"not applied", "bad"}, clean(why)
	case r.Health == "unhealthy" && r.DesiredState == "running":
		row.State = state{"unhealthy", "bad"}
		row.Why = plural(int(r.AvailableReplicas), "replica is available.", "replicas are available.")
	case r.Health != "":
		row.State = state{clean(r.Health), "idle"}
		if r.Health == "healthy" {
			row.State.Kind = "good"
		}
	case row.Wanted == "archived":
		row.State = state{"archived", "idle"}
	case byStatus["pending"] > 0:
		row.State = state{"pending", "busy"}
	case byStatus["running"] > 0:
		row.State = state{"running", "good"}
	}
	return row
}

// regionDocument is what the template region shows.
type regionDocument struct {
	Now       time.Time
	CanLogout bool
	Place     placeRow
	Region    regions.Region
	// Head is the version of the newest change of its log, and Applied the one that the agent has
	// applied.
	Head, Applied figure
	HasStreams    bool
	Streams       int
	Hold          *hold
	// Token is the token of the agent. Nil: tokens have no end.
	Token   *agentToken
	Objects []objectRow
	// More is true if there are objects that are not shown.
	More    bool
	Changes []change
}

// List is the place of the document in the navigation.
func (regionDocument) List() string { return "regions" }

// region shows one region: how it is, since when, why, what comes next, and its objects.
func (p *Page) region(w http.ResponseWriter, r *http.Request, who visitor) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	document, err := p.regionDocument(ctx, r.PathValue("region"))
	switch {
	case errors.Is(err, regions.ErrUnknownRegion):
		p.render(w, r, http.StatusNotFound, "missing", missing{"region", regionsPath})
		return
	case err != nil:
		p.fail(w, r, "region", err)
		return
	}
	document.CanLogout = who.sessionID != ""
	p.render(w, r, http.StatusOK, "region", document)
}

func (p *Page) regionDocument(ctx context.Context, id string) (document regionDocument, err error) {
	if !placeID.MatchString(id) {
		return regionDocument{}, regions.ErrUnknownRegion
	}
	health, err := p.regions.Health(ctx, id)
	if err != nil {
		return regionDocument{}, err
	}
	now := time.Now().UTC()
	document = regionDocument{
		Now: now, Region: health.Region,
		Place:   newPlaceRow("regions", health.Scope, id, regionProblems(&health, now, p.lifetime), alive),
		Token:   newAgentToken(audit.KindRegion, id, health.TokenUntil, now, p.lifetime),
		Hold:    newHold(audit.KindRegion, id, health.HeldDeletions, health.ApprovedDeletions),
		Head:    figure{health.Known, int64(health.Head)},                       //nolint:gosec // a version counts from 1
		Applied: figure{health.Known && health.Reported, int64(health.Applied)}, //nolint:gosec // as above
	}
	document.Region.CellID, document.Region.Platform = clean(health.CellID), clean(health.Platform)
	if p.streams != nil {
		document.HasStreams, document.Streams = true, p.streams(health.Scope)
	}
	if health.HeldDeletions != nil {
		if err := p.approval(ctx, document.Hold, audit.KindRegion, id, health.HeldDeletions.Digest); err != nil {
			return regionDocument{}, err
		}
	}
	objects, more, err := p.regions.Objects(ctx, id, shownObjects)
	if err != nil {
		return regionDocument{}, err
	}
	document.More = more
	why := map[string]string{}
	for _, p := range health.Problems {
		why[p.Resource] = p.Message
	}
	for i := range objects {
		o := &objects[i]
		document.Objects = append(document.Objects, newObjectRow(o, health.Silent, why[o.Collection+"/"+o.Namespace+"/"+o.Name]))
	}
	slices.SortStableFunc(document.Objects, func(a, b objectRow) int { return worst(a.State, b.State) })
	changes, err := p.changesOf(ctx, audit.Filter{Name: id})
	document.Changes = slices.DeleteFunc(changes, func(c change) bool { return collections[c.Kind] == "" })
	return document, err
}
