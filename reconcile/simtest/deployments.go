package simtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"
)

// Deployments is an actor: the controller of Deployments, beside which ReplicaSets acts. It
// keeps one ReplicaSet for the template of each, without pods of older templates, and the
// status. It knows no strategy.
func Deployments(w *World, c Change) {
	object := c.After
	if object == nil {
		object = c.Before
	}
	name := object.Name()
	switch object["kind"] {
	case "Deployment":
	case "ReplicaSet":
		name = owning(object, "Deployment")
	case "Pod":
		name = owning(w.object("replicasets.apps", object.Namespace(), owning(object, "ReplicaSet")), "Deployment")
	default:
		return
	}
	if name == "" {
		return
	}
	namespace := object.Namespace()
	w.After(time.Duration(1+w.Dice("deployment "+namespace+"/"+name).IntN(1000))*time.Millisecond, func() {
		if d := w.object("deployments.apps", namespace, name); d != nil && !d.Deleting() {
			roll(w, d)
		}
	})
}

// owning returns the name of the owner of a kind, empty if there is none.
func owning(o Object, kind string) string {
	for _, owner := range o.owners() {
		if owner["kind"] == kind {
			return owner.text("name")
		}
	}
	return ""
}

// deploymentController and replicaSetController are who makes the changes of Deployments and
// ReplicaSets.
const (
	deploymentController = "deployment controller"
	replicaSetController = "replica set controller"
)

const templateHash = "pod-template-hash"

// roll makes the ReplicaSets of a Deployment those that it wants.
func roll(w *World, d Object) {
	controller := w.As(deploymentController)
	sum := fnv.New32a()
	_ = json.NewEncoder(sum).Encode(d.Field("spec", "template")) // it was decoded
	hash := fmt.Sprintf("%08x", sum.Sum32())
	name, found := d.Name()+"-"+hash, false
	counts := map[string]float64{"replicas": 0, "updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0}
	for _, set := range w.objects("replicasets.apps") {
		if set.Owner() != d.UID() || set.Deleting() {
			continue
		}
		newest := set.Name() == name
		found = found || newest
		count(w, set, newest, counts)
		var wanted any = float64(0)
		if newest {
			wanted = d.Field("spec", "replicas")
		}
		if set.Field("spec", "replicas") != wanted {
			_ = controller.Update("replicasets.apps", set.Namespace(), set.Name(), func(o Object) { o.Set(wanted, "spec", "replicas") }) // it exists
		}
	}
	if !found {
		_ = controller.Create(replicaSet(d, name, hash)) // that of a Deployment of before may be going
	}
	counts["observedGeneration"] = d.number("metadata", "generation")
	next := clone(d)
	for field, n := range counts {
		next.Set(n, "status", field)
	}
	if !equal(next, d) {
		_ = controller.Update("deployments.apps", d.Namespace(), d.Name(), func(o Object) { o["status"] = next["status"] }) // it exists
	}
}

// count adds the pods of a ReplicaSet to the counts of its Deployment.
func count(w *World, set Object, newest bool, counts map[string]float64) {
	for _, pod := range w.objects("pods") {
		if pod.Owner() != set.UID() || pod.Deleting() || ended(pod) {
			continue
		}
		counts["replicas"]++
		if newest {
			counts["updatedReplicas"]++
		}
		if pod.condition("Ready").text("status") == "True" {
			counts["readyReplicas"]++
			counts["availableReplicas"]++
		}
	}
}

func replicaSet(d Object, name, hash string) Object {
	set := clone(Object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": map[string]any{
		"replicas": d.Field("spec", "replicas"), "selector": d.Field("spec", "selector"), "template": d.Field("spec", "template"),
	}})
	set.Set(hash, "spec", "selector", "matchLabels", templateHash)
	set.Set(hash, "spec", "template", "metadata", "labels", templateHash)
	set["metadata"] = map[string]any{
		"namespace": d.Namespace(), "name": name, "labels": set.Field("spec", "template", "metadata", "labels"),
		"ownerReferences": []any{map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "name": d.Name(), "uid": d.UID(), "controller": true, "blockOwnerDeletion": true,
		}},
	}
	return set
}
