package simtest

import (
	"encoding/json"
	"slices"
	"strings"
)

// actors are those of this package that make objects, whose names are drawn and whose past stays.
var actors = []string{deploymentController, replicaSetController} //nolint:gochecknoglobals // never changed

// State is what a scenario with no State of its own compares: all objects without
// what differs from history to history, one on a line. Fields that differ are the
// UIDs, versions, generations and times of the metadata, and of the status
// observedGeneration, startTime, the addresses of a pod, and lastTransitionTime. A generated name is its prefix, and the
// UID of an object that exists is its name, wherever it stands. Leases, Events, and what the actors
// Deployments and ReplicaSets have made are left out.
func (w *World) State() string {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines, names []string
	for k, o := range w.server.objects {
		names = append(names, o.UID(), "uid of "+k.String())
	}
	uids := strings.NewReplacer(names...)
	for k, o := range w.server.objects {
		if incidental(k.group, k.resource) || slices.Contains(actors, w.creators[o.UID()]) {
			continue
		}
		line, err := json.Marshal(canonical(clone(o)))
		if err != nil {
			line = []byte(err.Error())
		}
		lines = append(lines, uids.Replace(string(line)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func canonical(o Object) Object {
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		o.drop("metadata", field)
	}
	o.drop("metadata", "annotations", touched)
	o.drop("metadata", "labels", labelled)
	if prefix := o.text("metadata", "generateName"); prefix != "" {
		o.Set(prefix+"*", "metadata", "name")
	}
	if o["kind"] == "Service" && o.text("spec", "clusterIP") != "None" {
		o.drop("spec", "clusterIP")
		o.drop("spec", "clusterIPs")
	}
	for _, field := range []string{"observedGeneration", "startTime", "podIP", "podIPs"} {
		o.drop("status", field)
	}
	for _, each := range o.list("status", "conditions") {
		if condition, ok := each.(map[string]any); ok {
			delete(condition, "lastTransitionTime")
			delete(condition, "observedGeneration")
		}
	}
	for _, path := range [][]string{{"metadata", "annotations"}, {"metadata", "labels"}, {"status"}} {
		if m, ok := o.Field(path...).(map[string]any); ok && len(m) == 0 {
			o.drop(path...)
		}
	}
	return o
}
