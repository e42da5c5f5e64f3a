package agent

import (
	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// absence explains why the desired state lacks a live object: it is deleted there,
// or its service or project was rejected and the object must stay. The zero value
// explains neither.
type absence struct {
	goneServices, rejectedServices map[labelled]bool
	goneProjects, rejectedProjects map[string]bool
	rejectedEnvironments           map[labelled]bool // without a service
}

// labelled is an identity as the labels carry it.
type labelled struct{ project, environment, service string }

func labelsOf(id starbase.Identity) labelled {
	return labelled{hex32(id.ProjectID), id.Environment, hex32(id.ServiceID)}
}

func put[K comparable](m *map[K]bool, key K) {
	if *m == nil {
		*m = map[K]bool{}
	}
	(*m)[key] = true
}

func (k *absence) gone(id starbase.Identity) { put(&k.goneServices, labelsOf(id)) }
func (k *absence) goneProject(id string)     { put(&k.goneProjects, hex32(id)) }
func (k *absence) rejectProject(id string)   { put(&k.rejectedProjects, hex32(id)) }
func (k *absence) rejectGroup(g *starbase.VarGroup) {
	put(&k.rejectedEnvironments, labelled{hex32(g.ProjectID), g.Environment, ""})
}

func (k *absence) reject(id starbase.Identity) {
	at := labelsOf(id)
	put(&k.rejectedServices, at)
	at.service = ""
	put(&k.rejectedEnvironments, at)
	at.environment = ""
	put(&k.rejectedEnvironments, at)
}

func identityOf(o apply.Observed) labelled {
	return labelled{o.Label(labelProjectID), o.Label(labelEnvironment), o.Label(labelServiceID)}
}

// keeps reports that an object must stay: it is one of a rejected service or
// project, or one that these share.
func (k *absence) keeps(at labelled) bool {
	return k.rejectedProjects[at.project] || k.rejectedServices[at] || k.rejectedEnvironments[at]
}

// isGone reports that the desired state names the object as deleted.
func (k *absence) isGone(at labelled) bool {
	return k.goneProjects[at.project] || k.goneServices[at]
}

// unit names what an object is part of, as a person would: a service or a project,
// whatever the number of its objects. A project that is named as deleted is one unit
// with all its services.
func (k *absence) unit(at labelled) string {
	switch {
	case at.project == "":
		return ""
	case at.service == "" || k.goneProjects[at.project]:
		return "project " + at.project
	default:
		return "service " + at.project + "/" + at.environment + "/" + at.service
	}
}
