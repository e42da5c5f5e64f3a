package statuspage

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

const (
	// maxChanges is how many of the last changes are shown.
	maxChanges = 20
	// maxSought is how many of the last changes a search looks at.
	maxSought = 500
)

// change is an entry of the audit.
type change struct {
	audit.Entry
	// Object is what people call the object. Empty: it has no name, or is not there any more.
	Object string
	// Path and ActorPath are the pages of the object and of the agent that changed it. Empty:
	// there is none.
	Path, ActorPath string
}

func (c change) contains(text string) bool {
	return anyContains(text, c.Actor, c.Verb, c.Outcome, c.Kind, c.Name, c.Object, c.RequestID)
}

// directory has what people call objects.
type directory struct {
	clusters *clusters.Store
	regions  *regions.Store
}

// collections are the kinds of objects of regions, and how package regions calls them.
var collections = map[string]string{ //nolint:gochecknoglobals // never written to
	audit.KindRegion: "regions", audit.KindDeployment: "deployments", audit.KindSentinel: "sentinels", audit.KindPolicy: "policies",
}

// named returns the entries with the names and the pages of what they are about.
func (d *directory) named(ctx context.Context, entries []audit.Entry) ([]change, error) {
	var clusterIDs, projectIDs []string
	var services []starbase.Identity
	ofRegions := map[string][]string{}
	note := func(kind, name string) {
		switch kind {
		case audit.KindCluster:
			clusterIDs = append(clusterIDs, name)
		case audit.KindProject, audit.KindVarGroup:
			projectID, _, _ := strings.Cut(name, "/")
			projectIDs = append(projectIDs, projectID)
		case audit.KindService:
			services = append(services, identityOf(name))
		}
		if collection := collections[kind]; collection != "" {
			ofRegions[collection] = append(ofRegions[collection], name)
		}
	}
	for i := range entries {
		note(entries[i].Kind, entries[i].Name)
		if kind, id, ok := strings.Cut(entries[i].Actor, "/"); ok {
			note(kind, id)
		}
	}
	ofClusters, ofProjects, ofServices, err := d.clusters.Names(ctx, clusterIDs, projectIDs, services)
	if err != nil {
		return nil, err
	}
	inRegions, err := d.regions.Names(ctx, ofRegions)
	if err != nil {
		return nil, err
	}
	find := func(kind, name string) (object, path string) {
		switch kind {
		case audit.KindCluster:
			if c, ok := ofClusters[name]; ok {
				return c.Name, clustersPath + "/" + url.PathEscape(name)
			}
		case audit.KindProject, audit.KindVarGroup:
			projectID, _, _ := strings.Cut(name, "/")
			if p, ok := ofProjects[projectID]; ok {
				return p.Name, servicesPath + "?q=" + url.QueryEscape(projectID)
			}
		case audit.KindService:
			if s, ok := ofServices[name]; ok {
				id := identityOf(name)
				return s.Project + " / " + id.Environment + " / " + cmp.Or(s.Name, id.ServiceID), pathOf(id)
			}
		}
		if called, ok := inRegions[collections[kind]][name]; ok {
			regionID, _, _ := strings.Cut(name, "/")
			return called, regionsPath + "/" + url.PathEscape(regionID)
		}
		return "", ""
	}
	list := make([]change, len(entries))
	for i := range entries {
		list[i].Entry = entries[i]
		list[i].Object, list[i].Path = find(entries[i].Kind, entries[i].Name)
		if kind, id, ok := strings.Cut(entries[i].Actor, "/"); ok {
			_, list[i].ActorPath = find(kind, id)
		}
		list[i].Name, list[i].Object, list[i].Actor = clean(list[i].Name), clean(list[i].Object), clean(list[i].Actor)
	}
	return list, nil
}

// identityOf returns the service that the audit calls so.
func identityOf(name string) (id starbase.Identity) {
	id.ProjectID, name, _ = strings.Cut(name, "/")
	id.Environment, id.ServiceID, _ = strings.Cut(name, "/")
	return id
}

// changesOf returns the last changes that the filter chooses.
func (p *Page) changesOf(ctx context.Context, f audit.Filter) ([]change, error) {
	entries, _, err := p.changes.List(ctx, f, maxChanges)
	if err != nil {
		return nil, err
	}
	return p.directory.named(ctx, entries)
}

// soughtChanges returns the last changes that a view shows.
func soughtChanges(all []change, v view) listing {
	l := listing{Section: "changes", Query: clean(v.query), Total: len(all)}
	var shown []change
	text := strings.ToLower(v.query)
	for i := range all {
		if text == "" || all[i].contains(text) {
			if l.Found++; len(shown) < maxChanges {
				shown = append(shown, all[i])
			}
		}
	}
	l.Rows = shown
	return l
}
