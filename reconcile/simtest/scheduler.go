package simtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// places returns the Nodes that take a pod, by name.
func places(w *World, pod Object) []string {
	used, pods := map[string]amounts{}, amountsOf(pod)
	for _, other := range w.objects("pods") {
		if name := other.text("spec", "nodeName"); name != "" && !ended(other) {
			used[name] = used[name].plus(amountsOf(other))
		}
	}
	var names []string
	for _, n := range w.objects("nodes") {
		if !n.Deleting() && admits(n, pod) && used[n.Name()].plus(pods).within(n) {
			names = append(names, n.Name())
		}
	}
	return names
}

// placing is what of a Node decides which pods it takes.
func placing(n Object) string {
	text, err := json.Marshal([]any{
		n.condition("Ready").text("status"), n.Field("spec", "unschedulable"), n.Field("spec", "taints"), n.Field("metadata", "labels"),
		n.Field("status", "allocatable"),
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// admits reports whether the labels and taints of a Node let a pod on it. A Node that is not
// ready or cordoned counts as tainted before it is.
func admits(n, pod Object) bool {
	if selector, ok := pod.Field("spec", "nodeSelector").(map[string]any); ok {
		for name, value := range selector {
			if n.Field("metadata", "labels", name) != value {
				return false
			}
		}
	}
	taints := n.list("spec", "taints")
	if n.condition("Ready").text("status") != "True" {
		taints = append(taints, map[string]any{"key": "node.kubernetes.io/not-ready", "effect": noSchedule})
	}
	if n.Field("spec", "unschedulable") == true {
		taints = append(taints, map[string]any{"key": unschedulable, "effect": noSchedule})
	}
	for _, each := range taints {
		taint, _ := each.(map[string]any)
		if taint["effect"] != "PreferNoSchedule" && !tolerates(pod, taint) {
			return false
		}
	}
	return true
}

const (
	noSchedule    = "NoSchedule"
	noExecute     = "NoExecute"
	unschedulable = "node.kubernetes.io/unschedulable"
)

// tolerates reports whether a pod tolerates a taint, for however long.
func tolerates(pod, taint Object) bool { return toleration(pod, taint) != nil }

// toleration returns the first toleration of a pod that fits a taint, nil if there is none.
func toleration(pod, taint Object) Object {
	for _, each := range pod.list("spec", "tolerations") {
		t, _ := each.(map[string]any)
		o, exists := Object(t), t["operator"] == "Exists"
		switch {
		case o.text("effect") != "" && o.text("effect") != taint.text("effect"):
		case o.text("key") == "" && !exists, o.text("key") != "" && o.text("key") != taint.text("key"):
		case exists || o.text("value") == taint.text("value"):
			return o
		}
	}
	return nil
}

// amounts are how many pods, and what they request.
type amounts struct{ pods, cpu, memory float64 }

func (a amounts) plus(b amounts) amounts {
	return amounts{a.pods + b.pods, a.cpu + b.cpu, a.memory + b.memory}
}

// within reports whether a Node has room for all of it. What it does not report has no limit.
func (a amounts) within(n Object) bool {
	for name, wanted := range map[string]float64{"pods": a.pods, "cpu": a.cpu, "memory": a.memory} {
		if limit := n.Field("status", "allocatable", name); limit != nil && wanted > quantity(limit) {
			return false
		}
	}
	return true
}

func amountsOf(pod Object) amounts {
	a := amounts{pods: 1}
	for _, each := range pod.list("spec", "containers") {
		c, _ := each.(map[string]any)
		a.cpu += quantity(Object(c).Field("resources", "requests", "cpu"))
		a.memory += quantity(Object(c).Field("resources", "requests", "memory"))
	}
	return a
}

// quantity reads a resource.Quantity, 0 if it is none.
func quantity(value any) float64 {
	text := fmt.Sprint(value)
	for suffix, times := range map[string]float64{
		"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(text, suffix), 64); err == nil && strings.HasSuffix(text, suffix) {
			return n * times
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}
