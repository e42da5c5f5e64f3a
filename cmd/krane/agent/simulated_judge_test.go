package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// ownObject reports whether an object is one that the agent has applied.
func ownObject(o simtest.Object) bool {
	return o["kind"] != "Pod" && o.Label("app.kubernetes.io/managed-by") == "krane" && o.Label("unkey.com/region") == regionName
}

// objects are those that the agent makes.
func objects() controlplanetest.Objects {
	return controlplanetest.Objects{Kinds: simulatedKinds(), Own: ownObject}
}

// stated are the resources that the control plane states, read from its tables: those that are
// to be there, with their ids, by collection.
type stated struct {
	deployments []*ctrlv1.ApplyDeployment
	sentinels   []*ctrlv1.ApplySentinel
	policies    []*ctrlv1.ApplyCiliumNetworkPolicy
}

func (p *simulatedRegion) stated() (s stated) {
	read := func(query string, take func(spec []byte)) {
		p.plane.Each(query, func(values []any) { take([]byte(values[0].(string))) }) //nolint:forcetypeassert // a column of text
	}
	unmarshal := protojson.UnmarshalOptions{}
	read(`SELECT spec FROM deployment_topology WHERE desired_state IN ('running', 'started', 'starting')
		ORDER BY deployment_id`, func(spec []byte) {
		m := &ctrlv1.ApplyDeployment{}
		must(unmarshal.Unmarshal(spec, m))
		s.deployments = append(s.deployments, m)
	})
	read(`SELECT spec FROM sentinels WHERE desired_state = 'running' ORDER BY id`, func(spec []byte) {
		m := &ctrlv1.ApplySentinel{}
		must(unmarshal.Unmarshal(spec, m))
		s.sentinels = append(s.sentinels, m)
	})
	read(`SELECT policy FROM cilium_network_policies WHERE deleted = 0 ORDER BY id`, func(spec []byte) {
		m := &ctrlv1.ApplyCiliumNetworkPolicy{}
		must(unmarshal.Unmarshal(spec, m))
		s.policies = append(s.policies, m)
	})
	return s
}

// wanted returns the objects that the control plane states. With a world, the dependents have the
// owner that is there.
func (p *simulatedRegion) wanted(w *simtest.World) map[string]simtest.Object {
	c := p.config()
	cell, all := agent.CellOf(&c), map[string]simtest.Object{}
	add := func(objects []*unstructured.Unstructured, err error) {
		must(err)
		for _, each := range objects {
			o := controlplanetest.Wanted(each)
			all[controlplanetest.Key(o)] = o
		}
	}
	owner := func(kind, namespace, name string) types.UID {
		if w == nil {
			return ""
		}
		if o := w.Stored(objects().Resource(kind), namespace, name); o != nil {
			return types.UID(o.UID())
		}
		return ""
	}
	namespace := func(name string) {
		add(cell.Namespace(name))
		add(cell.Account(name))
	}
	s := p.stated()
	for _, d := range s.deployments {
		variables := map[string]string{}
		if sealed := d.GetEncryptedEnvironmentVariables(); len(sealed) > 0 {
			text, err := p.vault.Decrypt(context.Background(), d.GetEnvironmentId(), sealed)
			must(err)
			variables, err = vault.Variables(text)
			must(err)
		}
		namespace(d.GetK8SNamespace())
		add(cell.Deployment(d, variables, owner("ReplicaSet", d.GetK8SNamespace(), d.GetK8SName())))
	}
	for _, d := range s.sentinels {
		namespace(d.GetK8SNamespace())
		add(cell.Sentinel(d, owner("Deployment", d.GetK8SNamespace(), d.GetK8SName())))
	}
	for _, d := range s.policies {
		namespace(d.GetK8SNamespace())
		add(cell.Policy(d))
	}
	return all
}

// note takes in what is wanted now.
func (p *simulatedRegion) note() {
	wanted := p.wanted(nil)
	for key := range p.since {
		if wanted[key] == nil {
			delete(p.since, key)
			p.until[key] = time.Now()
		}
	}
	for key := range wanted {
		if _, known := p.since[key]; !known {
			delete(p.vanished, key)
			p.since[key] = time.Now()
		}
	}
}

// stale is how old the desired state may be that the agent acts on.
const stale = 5 * time.Minute

// check returns what must never happen.
func (p *simulatedRegion) check() func(*simtest.World, simtest.Change) error {
	checks := []func(*simtest.World, simtest.Change) error{
		p.checkDeletion, p.checkCreation, checkReplicas, simtest.NeverBefore("ciliumnetworkpolicies.cilium.io", "pods", isolated),
	}
	for _, k := range simulatedKinds() {
		checks = append(checks, simtest.NotAnothers(objects().Resource(k.Kind), applied))
	}
	return simtest.Checks(checks...)
}

// isolated reports whether a network policy of the agent selects a pod. A user may delete a stated policy at any time.
func isolated(pod, policy simtest.Object) bool {
	selected, _ := policy.Field("spec", "endpointSelector", "matchLabels").(map[string]any)
	for name, value := range selected {
		if pod.Label(name) != value {
			return false
		}
	}
	return policy.Label("app.kubernetes.io/component") != "policy"
}

// applied reports whether an object is one that the agent may write: one that it has applied, or
// the default account of a namespace, or a namespace that a person gave to it.
func applied(o simtest.Object) bool {
	if o["kind"] == "ServiceAccount" && o.Name() == "default" {
		return true
	}
	if o["kind"] == "Namespace" && o.Label("app.kubernetes.io/managed-by") == "krane" && o.Label("unkey.com/region") == regionName {
		return true
	}
	entries, _ := o.Field("metadata", "managedFields").([]any)
	return slices.ContainsFunc(entries, func(each any) bool {
		entry, _ := each.(map[string]any)
		return entry["manager"] == "krane"
	})
}

// checkReplicas leaves the replicas of a ReplicaSet to the autoscaler.
func checkReplicas(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.Before == nil || c.After == nil || c.After["kind"] != "ReplicaSet" {
		return nil
	}
	if before, after := c.Before.Field("spec", "replicas"), c.After.Field("spec", "replicas"); before != after {
		return fmt.Errorf("%s: %v replicas were %v", c.Request, after, before)
	}
	return nil
}

// checkDeletion has nothing deleted that is wanted, and was all the time or is for long, and
// nothing whose row has vanished before two lists lack it.
func (p *simulatedRegion) checkDeletion(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.Request.Verb != "delete" {
		return nil
	}
	if before, vanished := p.vanished[controlplanetest.Key(c.Before)]; vanished && p.policyLists() < before+2 {
		return fmt.Errorf("%s: its row vanished, and %d lists were asked for since", c.Request, p.policyLists()-before)
	}
	since, wanted := p.since[controlplanetest.Key(c.Before)]
	if _, ceased := p.until[controlplanetest.Key(c.Before)]; wanted && (!ceased || time.Since(since) > stale) {
		return fmt.Errorf("%s: it is wanted since %v", c.Request, time.Since(since))
	}
	return nil
}

// checkCreation has nothing made that is not wanted.
func (p *simulatedRegion) checkCreation(_ *simtest.World, c simtest.Change) error {
	if c.By != "program" || c.Before != nil {
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

// kept are the namespaces of policies that an empty list lacks: such a list deletes nothing.
func (p *simulatedRegion) kept(w *simtest.World) map[string]bool {
	kept := map[string]bool{}
	if len(p.stated().policies) > 0 {
		return kept
	}
	for _, o := range w.AllStored("ciliumnetworkpolicies.cilium.io") {
		if _, vanished := p.vanished[controlplanetest.Key(o)]; vanished && ownObject(o) {
			kept[o.Namespace()] = true
		}
	}
	return kept
}

// converged returns what is not as it is to be once all is quiet.
func (p *simulatedRegion) converged(w *simtest.World) error {
	wanted, kept := p.wanted(w), p.kept(w)
	errs := []error{objects().Unlike(w, wanted)}
	for _, o := range objects().In(w) {
		if key := controlplanetest.Key(o); o.Owner() == "" && wanted[key] == nil && !kept[o.Namespace()] && !kept[o.Name()] {
			errs = append(errs, fmt.Errorf("%s is left", key))
		}
	}
	errs = append(errs, p.reported(w))
	p.rested = p.facts()
	return errors.Join(errs...)
}

// released are the UIDs of ReplicaSets that a person has taken from the agent, and that are not
// wanted any more: the agent neither deletes them nor reports their pods.
func (p *simulatedRegion) released(w *simtest.World) map[string]bool {
	released, wanted := map[string]bool{}, p.wanted(w)
	for _, set := range w.AllStored("replicasets.apps") {
		if !ownObject(set) && wanted[controlplanetest.Key(set)] == nil {
			released[set.UID()] = true
		}
	}
	return released
}

// reported returns what the control plane says that is not so.
func (p *simulatedRegion) reported(w *simtest.World) error {
	var is, says []string
	released := p.released(w)
	for _, pod := range w.AllStored("pods") {
		if id := pod.Label("unkey.com/deployment.id"); id != "" && !pod.Deleting() && pod.Field("status", "phase") == "Running" &&
			!released[pod.Owner()] {
			is = append(is, fmt.Sprintln(id, pod.Name(), fmt.Sprint(pod.Field("status", "podIP"), ":8080"), "running"))
		}
	}
	for _, d := range w.AllStored("deployments.apps") {
		if id := d.Label("unkey.com/sentinel.id"); id != "" {
			available, _ := d.Field("status", "availableReplicas").(float64)
			health := "unhealthy"
			switch {
			case d.Field("spec", "replicas") == 0.0:
				health = "paused"
			case available > 0:
				health = "healthy"
			}
			is = append(is, fmt.Sprintln(id, available, health))
		}
	}
	text := p.plane.Rows(`SELECT deployment_id, k8s_name, address, status FROM instances`) +
		p.plane.Rows(`SELECT id, available_replicas, health FROM sentinels WHERE desired_state = 'running'`)
	says = slices.Sorted(strings.Lines(text))
	if slices.Sort(is); !slices.Equal(is, says) {
		return fmt.Errorf("reported:\n%s\nand runs:\n%s", strings.Join(says, ""), strings.Join(is, ""))
	}
	return nil
}

// facts is what the database has that must not change at rest: what is wanted, and what is
// reported but for the time and the process.
func (p *simulatedRegion) facts() string {
	return strings.Join([]string{
		p.plane.Rows(`SELECT id, cell_id, held_deletions FROM regions`),
		p.plane.Rows(`SELECT deployment_id, desired_state, spec, updated_at FROM deployment_topology ORDER BY deployment_id`),
		p.plane.Rows(`SELECT id, desired_state, spec, available_replicas, health FROM sentinels ORDER BY id`),
		p.plane.Rows(`SELECT id, policy, deleted, updated_at FROM cilium_network_policies ORDER BY id`),
		p.plane.Rows(`SELECT k8s_name, deployment_id, address, status, reason, restarts FROM instances ORDER BY k8s_name`),
	}, "\n")
}

// state is what the agent has made, to compare with another world.
func (p *simulatedRegion) state(w *simtest.World) string {
	if facts := p.facts(); p.rested != "" && facts != p.rested {
		w.Blame("the database has changed at rest:\n%s\nwas\n%s", facts, p.rested)
	}
	var lines []string
	kept, wanted := p.kept(w), p.wanted(nil)
	for _, o := range objects().In(w) {
		held := wanted[controlplanetest.Key(o)] == nil && (kept[o.Namespace()] || kept[o.Name()])
		if o.Label("pod-template-hash") != "" || held {
			continue
		}
		if o["kind"] == "ReplicaSet" { // the autoscaler has them
			delete(o["spec"].(map[string]any), "replicas") //nolint:forcetypeassert // it is one
		}
		lines = append(lines, controlplanetest.Content(o))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
