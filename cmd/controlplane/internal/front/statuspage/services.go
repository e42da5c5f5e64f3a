package statuspage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
)

// progressDeadline is how long a service may take from one state to the next until it counts as one
// that makes no progress.
const progressDeadline = 10 * time.Minute

// environmentPattern is what the environment of a service may be.
var environmentPattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// identified reports whether a service can have these ids.
func identified(id starbase.Identity) bool {
	return starbase.ValidUUID(id.ProjectID) && starbase.ValidUUID(id.ServiceID) && environmentPattern.MatchString(id.Environment)
}

// noProgress is a service that has been on its way for longer.
var noProgress = state{"no progress", "bad"} //nolint:gochecknoglobals // never written to

// serviceRow is a service in the list of all.
type serviceRow struct {
	// Path is where its own page is; see [pathOf].
	Path string
	// Identity is project, environment and service as people call them, IDs the same by their
	// ids.
	Identity, IDs string
	// ClusterID and Region are where it runs.
	ClusterID, Region string
	State             state
	// Since is when the state began; zero: unknown.
	Since          time.Time
	Ready, Desired int
	// Class and Message are the agent's words for why.
	Class, Message string
	// ClusterPath is where the page of the cluster is.
	ClusterPath string

	unlisted bool // by a newer report than the service's own
}

// standingOf returns how a service is in a cluster of that epoch, and since when.
func standingOf(s *clusters.ServiceState, epoch string, now time.Time) (is state, since time.Time) {
	since = s.Since
	unsaid := s.Standing == clusters.StandingPending || s.Standing == clusters.StandingUnknown
	switch {
	case s.Standing == clusters.StandingPending && s.ReportedEpoch != epoch:
		since = time.Time{} // since the restore
	case unsaid:
		since = s.ChangedAt
	}
	switch {
	case s.WantedGeneration == 0:
		return state{"not wanted", "busy"}, since
	case s.Deleted && (unsaid || s.ErrorClass == starbase.ClassUnseen):
		return state{"being deleted", "idle"}, since
	case s.Deleted && s.Standing == clusters.StandingDeleted:
		return state{"deleted", "idle"}, s.ChangedAt
	case s.Deleted:
		if s.ChangedAt.After(since) {
			since = s.ChangedAt
		}
		return state{"deletion held", "busy"}, since
	}
	is = state{strings.ToLower(string(s.Standing)), "busy"}
	if i := slices.IndexFunc(states, func(known state) bool { return known.Word == string(s.Standing) }); i >= 0 {
		is.Kind = states[i].Kind
	}
	if is.Kind == "busy" && !since.IsZero() && now.Sub(since) >= progressDeadline {
		return noProgress, since
	}
	return is, since
}

// pathOf returns where the page of a service is. Empty: its ids, which an agent has reported,
// are none.
func pathOf(id starbase.Identity) string {
	if !identified(id) {
		return ""
	}
	return servicesPath + "/" + url.PathEscape(id.ProjectID) + "/" + url.PathEscape(id.ServiceID) + "/" + url.PathEscape(id.Environment)
}

// newServiceRow returns the row of a service, whose cluster is silent if it was not heard for
// that long.
func newServiceRow(c *clusters.Cluster, s *clusters.ServiceState, now time.Time, silence time.Duration) serviceRow {
	row := serviceRow{
		Path:     pathOf(s.Identity()),
		Identity: clean(cmp.Or(s.ProjectSlug, s.ProjectID) + " / " + s.Environment + " / " + cmp.Or(s.ServiceName, s.ServiceID)),
		IDs:      clean(s.ProjectID + " / " + s.Environment + " / " + s.ServiceID), ClusterID: c.ClusterID, Region: clean(c.Region),
		Ready: s.Ready, Desired: s.Desired, Class: clean(s.ErrorClass), Message: clean(s.Message),
		ClusterPath: clustersPath + "/" + url.PathEscape(c.ClusterID),
	}
	row.State, row.Since = standingOf(s, c.Epoch, now)
	contact := c.Contact()
	switch {
	case !contact.IsZero() && now.Sub(contact) >= silence && row.State.Kind != "bad":
		row.Message = strings.TrimSpace("It was " + row.State.Word + " when the agent was heard last. " + row.Message)
		row.State, row.Since = silent, contact
	case s.Standing == clusters.StandingUnknown && !s.Deleted && c.LastReportAt.After(s.ChangedAt):
		row.Since, row.unlisted = time.Time{}, true
	}
	return row
}

func (row serviceRow) contains(text string) bool {
	return anyContains(text, row.Identity, row.IDs, row.ClusterID, row.Region, row.State.Word, row.Class)
}

// List is the place of the document in the navigation.
func (servicesDocument) List() string { return "services" }

// List is the place of the document in the navigation.
func (serviceDocument) List() string { return "services" }

// next returns what a person can do about a service in that row. Empty: there is nothing to do.
func (row serviceRow) next() string {
	switch {
	case row.State == silent:
		return "The cluster's agent is silent: see to it first. What it runs goes on meanwhile."
	case row.unlisted:
		return "The newest report of the cluster's agent does not name the service: look at the agent's log."
	}
	return next(row.State.Word, row.Class)
}

// next returns what a person can do about a service in that state, with that error class.
func next(word, class string) string {
	advice := map[string]string{
		starbase.ClassNameTaken: "Another program has an object of this name: rename the service, or remove that object.",
		"Claimed":               "Another program of ours has this object: find out which one should have it.",
		starbase.ClassContested: "Another manager changes an object back: stop it, or state what it wants.",
		"Invalid":               "The cluster refuses the object as it is: change the service as the message says.",
		"Forbidden":             "The agent lacks a right, or an admission policy refuses the object: compare the message with the agent's Role.",
		"NoProject":             "Put the project that the service belongs to.",
		"NoVarGroup":            "Put the var group, or attach another one.",
		"DuplicateIdentity":     "Two services have the same identity: remove one.",
		"NameCollision":         "The names of two services become the same: rename one.",
		"Quota":                 "Raise the project's quota, or ask for less.",
		"Rejected":              "An admission policy refuses the pods: change the service as the message says.",
		"Unschedulable":         "No node has room for a pod: add nodes, or request less.",
		"Volume":                "A volume cannot be attached: look at its PersistentVolumeClaim.",
		"ImagePull":             "The image cannot be pulled: check its name, tag and the registry's credentials.",
		"ContainerConfig":       "The container refers to what is not there: check variables and var groups.",
		"CrashLoop":             "The container ends again and again: read its log in the cluster.",
		"Unready":               "The container runs and does not become ready: check its readiness check and its log.",
		"Evicted":               "The node had too little of something: request what the service really uses.",
		"Blocked":               "Something that has to come first is not there: look at the message.",
		"Terminating":           "An object is being deleted and a finalizer holds it: look at the controller that the finalizer belongs to.",
	}
	switch text, known := advice[class]; {
	case word == "healthy", word == "deleted":
		return ""
	case word == "deletion held" && class != starbase.ClassDeletionHeld:
		return "The agent still reports it: the message says why, and its next report whether it is gone."
	case class == starbase.ClassDeletionHeld:
		return "Look at what the cluster's agent holds, and approve it if it is meant: controlplane approve cluster."
	case class == starbase.ClassUnseen:
		return "The agent cannot see the cluster: look at its API server."
	case word == "being deleted", word == "pending":
		return "Nothing: the agent has not reported on the change yet."
	case word == "not wanted":
		return "The cluster runs it and it is not in the database: was the database restored? See the runbook."
	case known:
		return text
	case word == noProgress.Word:
		return "Is the cluster's agent alive? If so, look at the pods of the service in the cluster."
	case word == "failed", word == "rejected":
		return "The message says why."
	case word == "unknown":
		return "The cluster's agent has not reported it: does it run, and with the token of this cluster?"
	}
	return ""
}

// servicesDocument is what the template services shows.
type servicesDocument struct {
	Now       time.Time
	CanLogout bool
	Model     listing
	Query     string
	// States counts all services by state.
	States []count
}

// services shows every service, what needs a look first, or those that the query finds.
func (p *Page) services(w http.ResponseWriter, r *http.Request, who visitor) {
	v, err := viewOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	all, err := p.clusters.Standings(ctx)
	if err != nil {
		p.fail(w, r, "services", err)
		return
	}
	now := time.Now().UTC()
	var rows []serviceRow
	document := servicesDocument{Now: now, CanLogout: who.sessionID != "", Query: clean(v.query)}
	for i := range all {
		for j := range all[i].Services {
			rows = append(rows, newServiceRow(&all[i].Cluster, &all[i].Services[j], now, p.silence))
			document.States = add(document.States, count{rows[len(rows)-1].State, 1})
		}
	}
	sortCounts(document.States)
	sortServices(rows)
	_, document.Model = list(rows, "services", v)
	p.render(w, r, http.StatusOK, "services", document)
}

// serviceDocument is what the template service shows.
type serviceDocument struct {
	Now       time.Time
	CanLogout bool
	Service   serviceRow
	// Next is what a person can do. Empty: nothing.
	Next string
	// Image and Replicas are what is wanted; empty: it is deleted.
	Image    string
	Replicas int
	// Wanted is the generation that changed it last, Observed the one that the agent has applied.
	Wanted, Observed      int64
	ChangedAt, ReportedAt time.Time
	Instance, Digest      string
	// Hold is what the cluster's agent holds; nil for nothing.
	Hold *hold
	// Contact is when the agent was heard last; zero: never.
	Contact time.Time
	Changes []change
}

// service shows one service: how it is, since when, why, and what comes next.
func (p *Page) service(w http.ResponseWriter, r *http.Request, who visitor) {
	id := starbase.Identity{ProjectID: r.PathValue("project"), Environment: r.PathValue("environment"), ServiceID: r.PathValue("service")}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	cluster, s, err := clusters.Cluster{}, clusters.ServiceState{}, clusters.ErrUnknownService
	if identified(id) {
		cluster, s, err = p.clusters.Standing(ctx, id)
	}
	switch {
	case errors.Is(err, clusters.ErrUnknownService):
		p.render(w, r, http.StatusNotFound, "missing", missing{"service", servicesPath})
		return
	case err != nil:
		p.fail(w, r, "service", err)
		return
	}
	now := time.Now().UTC()
	document := serviceDocument{
		Now:        now,
		CanLogout:  who.sessionID != "",
		Service:    newServiceRow(&cluster, &s, now, p.silence),
		Wanted:     s.WantedGeneration,
		Observed:   s.ObservedGeneration,
		ChangedAt:  s.ChangedAt,
		ReportedAt: s.ReportedAt,
		Instance:   clean(s.InstanceID),
		Digest:     clean(s.ImageDigest),
		Hold:       newHold(audit.KindCluster, cluster.ClusterID, cluster.HeldDeletions, cluster.ApprovedDeletions),
		Contact:    cluster.Contact(),
	}
	if s.WantedGeneration > 0 && !s.Deleted {
		wanted, err := p.clusters.Service(ctx, id)
		if err != nil {
			p.fail(w, r, "service", err)
			return
		}
		document.Image, document.Replicas = clean(wanted.Image), wanted.Replicas
	}
	document.Next = document.Service.next()
	ofService := audit.Filter{Log: audit.Changes, Kind: audit.KindService, Name: clusters.AuditName(id)}
	document.Changes, err = p.changesOf(ctx, ofService)
	if err != nil {
		p.fail(w, r, "service", err)
		return
	}
	p.render(w, r, http.StatusOK, "service", document)
}
