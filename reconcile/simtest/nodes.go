package simtest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// NodeController is an actor that does what a cluster does with its Nodes: it taints them
// by their condition Ready and their cordon, evicts the pods that do not tolerate a taint
// NoExecute, and deletes the pods of Nodes that are gone. The zero value is ready.
type NodeController struct {
	// Patience is how long pods that say nothing of it stay on a Node that is not ready.
	// Default 5 minutes.
	Patience time.Duration
}

// Act is called after each write.
func (c NodeController) Act(w *World, change Change) {
	object := change.After
	if object == nil {
		object = change.Before
	}
	switch {
	case object["apiVersion"] != "v1":
	case object["kind"] == "Pod" && change.After != nil && object.text("spec", "nodeName") != "" &&
		(change.Before == nil || change.Before.text("spec", "nodeName") == ""):
		if n := w.object("nodes", "", object.text("spec", "nodeName")); n != nil {
			c.evict(w, n, object)
		}
	case object["kind"] != "Node":
	case change.After == nil:
		c.after(w, "collects "+object.Name(), 40*time.Second, func() { collectPods(w, object.Name()) })
	default:
		if !reflect.DeepEqual(tainted(object), object.Field("spec", "taints")) {
			c.after(w, "taints "+object.Name(), time.Second, func() {
				// It may have gone.
				_ = w.As("node controller").Update("nodes", "", object.Name(), func(o Object) { o.Set(tainted(o), "spec", "taints") })
			})
		}
		if change.Before != nil && reflect.DeepEqual(change.Before.Field("spec", "taints"), object.Field("spec", "taints")) {
			return
		}
		for _, pod := range w.objects("pods") {
			if pod.text("spec", "nodeName") == object.Name() {
				c.evict(w, object, pod)
			}
		}
	}
}

func (NodeController) after(w *World, what string, most time.Duration, act func()) {
	w.After(time.Duration(1+w.Dice("node controller "+what).Int64N(int64(most))), act)
}

// tainted returns the taints of a Node with those that its conditions ask for, as a value
// of JSON.
func tainted(n Object) any {
	wanted := map[string]string{}
	switch n.condition("Ready").text("status") {
	case "True":
	case "Unknown":
		wanted["node.kubernetes.io/unreachable"] = ""
	default:
		wanted["node.kubernetes.io/not-ready"] = ""
	}
	var all []any
	has := map[string]bool{}
	for _, each := range n.list("spec", "taints") {
		taint, _ := each.(map[string]any)
		key, effect := Object(taint).text("key"), Object(taint).text("effect")
		_, wants := wanted[key]
		switch own := key == "node.kubernetes.io/unreachable" || key == "node.kubernetes.io/not-ready"; {
		case own && !wants, key == unschedulable && n.Field("spec", "unschedulable") != true:
		default:
			all = append(all, each)
			has[key+effect] = true
		}
	}
	add := func(key, effect string) {
		if !has[key+effect] {
			all = append(all, map[string]any{"key": key, "effect": effect, "timeAdded": time.Now().UTC().Format(time.RFC3339)})
		}
	}
	for key := range wanted {
		add(key, noSchedule)
		add(key, noExecute)
	}
	if n.Field("spec", "unschedulable") == true {
		add(unschedulable, noSchedule)
	}
	if all == nil {
		return nil
	}
	return all
}

// evict plans the end of a pod on a Node with taints that it does not tolerate for ever.
func (c NodeController) evict(w *World, n, pod Object) {
	for _, each := range n.list("spec", "taints") {
		taint, _ := each.(map[string]any)
		if taint["effect"] != noExecute || pod.Deleting() {
			continue
		}
		wait := time.Duration(0)
		t := toleration(pod, taint)
		switch seconds, limited := t["tolerationSeconds"]; {
		case t != nil && !limited:
			continue
		case t != nil:
			s, err := strconv.ParseFloat(fmt.Sprint(seconds), 64)
			if err != nil {
				continue
			}
			wait = time.Duration(s * float64(time.Second))
		case strings.HasPrefix(fmt.Sprint(taint["key"]), "node.kubernetes.io/"):
			if wait = c.Patience; wait == 0 {
				wait = 5 * time.Minute
			}
		}
		w.After(wait+time.Duration(1+w.Dice("evicts "+pod.Name()).IntN(1000))*time.Millisecond, func() {
			live, on := w.object("pods", pod.Namespace(), pod.Name()), w.object("nodes", "", n.Name())
			if live == nil || live.UID() != pod.UID() || live.Deleting() || on == nil {
				return
			}
			for _, still := range on.list("spec", "taints") {
				if reflect.DeepEqual(still, each) {
					_ = w.As("taint manager").Delete("pods", pod.Namespace(), pod.Name()) // it exists
					return
				}
			}
		})
	}
}

// collectPods deletes the pods of a Node that is gone.
func collectPods(w *World, node string) {
	if w.object("nodes", "", node) != nil {
		return
	}
	for _, pod := range w.objects("pods") {
		if pod.text("spec", "nodeName") == node {
			_ = w.As("pod garbage collector").DeleteNow("pods", pod.Namespace(), pod.Name()) // it exists
		}
	}
}

// ReplicaSets is an actor: the controller of ReplicaSets. It keeps as many pods of each as
// it has replicas, in place of those that end or are deleted.
func ReplicaSets(w *World, c Change) {
	object := c.After
	if object == nil {
		object = c.Before
	}
	namespace, name := object.Namespace(), object.Name()
	switch object["kind"] {
	case "ReplicaSet":
	case "Pod":
		if c.Before != nil && c.After != nil && c.Before.Deleting() == c.After.Deleting() && ended(c.Before) == ended(c.After) {
			return
		}
		name = ""
		for _, owner := range object.owners() {
			if owner["kind"] == "ReplicaSet" {
				name = owner.text("name")
			}
		}
	default:
		return
	}
	if name == "" {
		return
	}
	w.After(time.Duration(1+w.Dice("replica set "+namespace+"/"+name).IntN(1000))*time.Millisecond, func() {
		if set := w.object("replicasets.apps", namespace, name); set != nil && !set.Deleting() {
			replicate(w, set)
		}
	})
}

func replicate(w *World, set Object) {
	var alive []Object
	for _, pod := range w.objects("pods") {
		switch {
		case pod.Owner() != set.UID() || pod.Deleting():
		case ended(pod):
			_ = w.As(replicaSetController).Delete("pods", pod.Namespace(), pod.Name()) // it exists
		default:
			alive = append(alive, pod)
		}
	}
	wanted := int(set.number("spec", "replicas"))
	for range wanted - len(alive) {
		pod := clone(Object{"apiVersion": "v1", "kind": "Pod", "spec": set.Field("spec", "template", "spec")})
		name := fmt.Sprintf("%s-%05x", set.Name(), w.Dice("name of a pod of "+set.Name()).IntN(1<<20))
		pod["metadata"] = map[string]any{
			"namespace": set.Namespace(), "name": name, "labels": set.Field("spec", "template", "metadata", "labels"),
			"ownerReferences": []any{map[string]any{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.Name(), "uid": set.UID(), "controller": true, "blockOwnerDeletion": true,
			}},
		}
		if annotations := set.Field("spec", "template", "metadata", "annotations"); annotations != nil {
			pod.Set(annotations, "metadata", "annotations")
		}
		_ = w.As(replicaSetController).Create(pod) // a name may be taken: its next look makes another
	}
	for i := wanted; i < len(alive); i++ {
		_ = w.As(replicaSetController).Delete("pods", alive[i].Namespace(), alive[i].Name()) // it exists
	}
}
