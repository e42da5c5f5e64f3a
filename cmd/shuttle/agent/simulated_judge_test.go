package agent_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// ownObject reports whether the agent has made an object.
func ownObject(o simtest.Object) bool {
	return o.Label("starform.io/managed-by") == "shuttle" && o.Label("starform.io/cluster-id") == clusterID && o.Owner() == ""
}

// objects are those that the agent makes.
func objects() controlplanetest.Objects {
	return controlplanetest.Objects{Kinds: simulatedKinds(), Own: ownObject}
}

// rendered are the objects of a desired state. It is asked for after each write, and changes seldom.
type rendered struct {
	state          *starbase.DesiredState
	wanted, stated map[string]simtest.Object
}

// rendered returns the objects that the database wants.
func (p *starbaseWorld) rendered() rendered {
	state, err := p.plane.Clusters.DesiredState(p.t.Context(), clusterID)
	must(err)
	if reflect.DeepEqual(state, p.last.state) {
		return p.last
	}
	p.last = rendered{state, map[string]simtest.Object{}, map[string]simtest.Object{}}
	for _, each := range shuttle.Render(state, clusterID, rules).Objects {
		o := controlplanetest.Wanted(each.Object)
		key := controlplanetest.Key(o)
		p.last.wanted[key], p.last.stated[key] = o, controlplanetest.Wanted(each.Object)
	}
	for _, want := range p.last.stated {
		if want["kind"] == "Deployment" && p.last.stated["HorizontalPodAutoscaler "+want.Namespace()+"/"+want.Name()] != nil {
			delete(want["spec"].(map[string]any), "replicas") //nolint:forcetypeassert // it is rendered
		}
	}
	return p.last
}

// wanted returns the objects that the database wants. They may not be changed.
func (p *starbaseWorld) wanted() map[string]simtest.Object { return p.rendered().wanted }

// note takes in what is wanted now.
func (p *starbaseWorld) note() {
	wanted := p.wanted()
	for key := range p.since {
		if wanted[key] == nil {
			delete(p.since, key)
			p.until[key] = time.Now()
		}
	}
	for key := range wanted {
		if _, known := p.since[key]; !known {
			p.since[key] = time.Now()
		}
	}
}

// stale is how old the desired state may be that the agent acts on.
const stale = 5 * time.Minute

// check returns what must never happen.
func (p *starbaseWorld) check() func(*simtest.World, simtest.Change) error {
	checks := []func(*simtest.World, simtest.Change) error{
		p.checkDeletion, p.checkCreation, simtest.NeverBefore("networkpolicies.networking.k8s.io", "pods", isolated),
	}
	for _, k := range simulatedKinds() {
		checks = append(checks, simtest.NotAnothers(objects().Resource(k.Kind), applied))
	}
	return simtest.Checks(checks...)
}

// isolated reports whether a pod is one that a network policy selects.
func isolated(pod, policy simtest.Object) bool {
	selected, _ := policy.Field("spec", "podSelector", "matchLabels").(map[string]any)
	for name, value := range selected {
		if pod.Label(name) != value {
			return false
		}
	}
	return true
}

// applied reports whether an object is one that the agent may write: one that it has applied, or
// one of the gateway.
func applied(o simtest.Object) bool {
	if o.Namespace() == "edge" || o["kind"] == "Namespace" && o.Name() == "edge" {
		return true
	}
	entries, _ := o.Field("metadata", "managedFields").([]any)
	return slices.ContainsFunc(entries, func(each any) bool {
		entry, _ := each.(map[string]any)
		manager, _ := entry["manager"].(string)
		return strings.HasPrefix(manager, "shuttle")
	})
}

// checkDeletion has nothing deleted that is wanted, and was all the time or is for long. Of two agents one
// may not know yet what the other has made.
func (p *starbaseWorld) checkDeletion(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.Request.Verb != "delete" {
		return nil
	}
	since, wanted := p.since[controlplanetest.Key(c.Before)]
	_, ceased := p.until[controlplanetest.Key(c.Before)]
	if another := p.beside.Load() && since.After(p.began); wanted && (!ceased && !another || time.Since(since) > stale) {
		return fmt.Errorf("%s: it is wanted since %v", c.Request, time.Since(since))
	}
	return nil
}

// checkCreation has nothing made that is not wanted.
func (p *starbaseWorld) checkCreation(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.Before != nil || c.After.Namespace() == "starform-system" {
		return nil
	}
	if _, wanted := p.since[controlplanetest.Key(c.After)]; wanted {
		return nil
	}
	if until, was := p.until[controlplanetest.Key(c.After)]; !was || time.Since(until) > stale {
		return fmt.Errorf("%s: it is not wanted (was: %t)", c.Request, was)
	}
	return nil
}

// stated is wanted, without the replicas that an autoscaler has. It is nothing before the database is open.
func (p *starbaseWorld) stated() map[string]simtest.Object {
	if p.plane.Clusters == nil {
		return nil
	}
	return p.rendered().stated
}

// converged returns what is not as it is to be once all is quiet.
func (p *starbaseWorld) converged(w *simtest.World) error {
	wanted := p.stated()
	errs := []error{objects().Unlike(w, wanted)}
	for _, o := range objects().In(w) {
		if key := controlplanetest.Key(o); wanted[key] == nil {
			errs = append(errs, fmt.Errorf("%s is left", key))
		}
	}
	errs = append(errs, p.reported(w))
	p.rested = p.facts()
	return errors.Join(errs...)
}

// reported returns what the control plane says that is not so.
func (p *starbaseWorld) reported(w *simtest.World) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	cluster, services, err := p.plane.Clusters.Cluster(p.t.Context(), clusterID)
	must(err)
	if cluster.ReportedGeneration != cluster.Generation || cluster.ReportedEpoch != cluster.Epoch {
		wrong("generation %d is reported, and %d is wanted", cluster.ReportedGeneration, cluster.Generation)
	}
	if cluster.ReportedErrorClass != "" || cluster.HeldDeletions != nil {
		wrong("%s: %s, held: %v", cluster.ReportedErrorClass, cluster.ReportedMessage, cluster.HeldDeletions)
	}
	// What a person has taken the label of is not the agent's any more, and stays.
	taken := map[any]bool{}
	for _, d := range w.AllStored("deployments.apps") {
		taken[d.Field("metadata", "uid")] = !ownObject(d)
	}
	for _, set := range w.AllStored("replicasets.apps") {
		taken[set.Field("metadata", "uid")] = taken[set.Owner()]
	}
	running := map[string]int{}
	for _, pod := range w.AllStored("pods") {
		if pod.Field("status", "phase") == "Running" && !pod.Deleting() && !taken[pod.Owner()] {
			running[pod.Label("starform.io/project-id")+pod.Label("starform.io/environment")+pod.Label("starform.io/service-id")]++
		}
	}
	for i := range services {
		s := &services[i]
		n := running[strings.ReplaceAll(s.ProjectID, "-", "")+s.Environment+strings.ReplaceAll(s.ServiceID, "-", "")]
		switch {
		case s.Deleted && (s.Standing != controlplanetest.StandingDeleted || n > 0):
			wrong("deleted service %s is %s, and %d pods run: %s", s.Identity(), s.Standing, n, s.Message)
		case !s.Deleted && (s.Standing != "Healthy" || s.Ready != n || s.Desired != n):
			wrong(
				"service %s is %s, %d of %d ready, and %d pods run: %s %s",
				s.Identity(), s.Standing, s.Ready, s.Desired, n, s.ErrorClass, s.Message,
			)
		}
	}
	return errors.Join(errs...)
}

// facts is what the database has that must not change at rest: what is wanted, and what is
// reported but for the time and the process.
func (p *starbaseWorld) facts() string {
	return strings.Join([]string{
		p.plane.Rows(`SELECT epoch, generation, nonce, lb_size_units, reported_epoch, reported_generation, reported_error_class, held_deletions
			FROM clusters`),
		p.plane.Rows(`SELECT * FROM projects ORDER BY id`), p.plane.Rows(`SELECT * FROM services ORDER BY project_id, environment, service_id`),
		p.plane.Rows(`SELECT project_id, environment, service_id, generation, observed_generation, phase, ready, desired, image_digest,
			error_class, message FROM service_status ORDER BY project_id, environment, service_id`),
	}, "\n")
}

// state is what the agent has made, to compare with another world.
func (p *starbaseWorld) state(w *simtest.World) string {
	if facts := p.facts(); p.rested != "" && facts != p.rested {
		w.Blame("the database has changed at rest:\n%s\nwas\n%s", facts, p.rested)
	}
	var lines []string
	for _, o := range objects().In(w) {
		if o["kind"] == "Deployment" { // an autoscaler may have them
			delete(o["spec"].(map[string]any), "replicas") //nolint:forcetypeassert // it is one
		}
		lines = append(lines, controlplanetest.Content(o))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
