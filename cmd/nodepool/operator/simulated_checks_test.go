package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// ours reports whether a machine belongs to the cluster.
func ours(i cloud.Instance) bool { return i.Tags[v1alpha1.Group+"/cluster"] == "c" }

func uidOf(i cloud.Instance) string { return i.Tags[v1alpha1.Group+"/pool-uid"] }

// note takes in what pools are to be.
func (p *pooled) note(w *simtest.World, c simtest.Change) {
	if c.After != nil && c.After["kind"] == "Node" && c.By == "administrator" {
		p.opened[c.After.Name()] = time.Now()
	}
	if text := fmt.Sprint(c.After["message"], c.After.Field("status", "conditions")); c.After != nil && strings.Contains(text, "0001-01-01") {
		w.Blame("%s %s has a time that is none: %s", c.After["kind"], c.After.Name(), text)
	}
	if c.After == nil || c.After["kind"] != "NodePool" {
		return
	}
	uid := c.After.UID()
	if size := integer(c.After.Field("spec", "poolSize")); len(p.sizes[uid]) == 0 || p.sizes[uid][len(p.sizes[uid])-1].size != size {
		p.sizes[uid] = append(p.sizes[uid], sizeFrom{time.Now(), size})
	}
	if _, ok := p.removed[uid]; c.After.Deleting() && !ok {
		p.removed[uid] = time.Now()
	}
}

func integer(value any) int {
	switch n := value.(type) {
	case float64:
		return int(n)
	case int:
		return n
	case int64:
		return int(n)
	}
	return 0
}

// sizeOf is the largest size that a pool had within the last ten minutes.
func (p *pooled) sizeOf(uid string) int {
	largest := 0
	for i, s := range p.sizes[uid] {
		if i+1 == len(p.sizes[uid]) || time.Since(p.sizes[uid][i+1].at) < 10*time.Minute {
			largest = max(largest, s.size)
		}
	}
	return largest
}

// judge blames the program for a call that it must never make.
func (p *pooled) judge(w *simtest.World, c cloudtest.Call) {
	count := map[string]int{}
	byID := map[string]cloud.Instance{}
	for _, i := range p.Cloud.Instances() {
		byID[i.ID] = i
		if ours(i) && !i.State.Ending() {
			count[uidOf(i)]++
		}
	}
	for uid, n := range count {
		// Those that run are not ended when the pool gets smaller.
		if n > p.counted[uid] && n > p.sizeOf(uid) {
			w.Blame("%d machines of pool %s, which is to have %d at most", n, uid, p.sizeOf(uid))
		}
	}
	p.counted = count
	for _, id := range c.IDs {
		i, ok := byID[id]
		if ok && !ours(i) && c.Operation != "GetInstance" && c.Operation != "GetInstanceState" {
			w.Blame("%s of %s, a machine of others", c.Operation, id)
		}
		if ok && (c.Operation == "StopInstance" || c.Operation == "TerminateInstance") && i.State == cloud.InstanceRunning {
			p.judgeEnd(w, c.Operation, i)
		}
	}
}

// judgeEnd blames the program for the end of a machine that runs pods.
func (p *pooled) judgeEnd(w *simtest.World, operation string, i cloud.Instance) {
	name := p.Of(i.ID)
	n := w.Object("nodes", "", name)
	if n == nil || !p.Up(w, name) || n.Label(v1alpha1.LabelState) == string(cloud.StateWarmup) {
		return
	}
	if since, ok := p.removed[uidOf(i)]; ok && time.Since(since) > 5*time.Minute {
		return // its drain is over
	}
	if since, ok := p.opened[name]; ok && time.Since(since) < time.Minute {
		return // a pod may have come that no watch has shown yet
	}
	for _, pod := range w.Objects("pods") {
		if phase := pod.Field("status", "phase"); pod.Field("spec", "nodeName") == name && phase == "Running" {
			w.Blame("%s of %s, which is %s and runs %s", operation, i.ID, n.Label(v1alpha1.LabelState), pod.Name())
		}
	}
}

// converged returns what is not as it is to be once all is quiet.
func (p *pooled) converged(w *simtest.World) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	machines := map[string][]cloud.Instance{}
	for _, i := range p.Cloud.Instances() {
		switch {
		case i.State.Ending():
		case !ours(i):
			if i.State != cloud.InstanceRunning {
				wrong("machine %s of others is %s", i.ID, i.State)
			}
		default:
			machines[uidOf(i)] = append(machines[uidOf(i)], i)
		}
	}
	pools := map[string]simtest.Object{}
	for _, pool := range w.Objects(poolsKind) {
		if pools[pool.Name()] = pool; pool.Deleting() {
			wrong("pool %s is still there", pool.Name())
			continue
		}
		if classOf(w, pool) {
			errs = append(errs, p.atRest(w, pool, machines[pool.UID()]), p.consolidated(w, pool, machines[pool.UID()]))
		} else if c := conditionOf(pool, "Degraded"); c["status"] != "True" {
			wrong("pool %s has no class, and says %v", pool.Name(), pool.Field("status"))
		}
		delete(machines, pool.UID())
	}
	for uid, left := range machines {
		wrong("%d machines of pool %s, which is gone: %v", len(left), uid, left[0].ID)
	}
	used := map[any]bool{}
	for _, pool := range pools {
		used[pool.Field("spec", "template", "nodeClassRef", "name")] = true
	}
	for _, c := range w.Objects(classesKind) {
		if c.Deleting() && !used[c.Name()] { // one that is used stays until it is not
			wrong("class %s is still there", c.Name())
		}
	}
	for _, pod := range w.Objects("pods") {
		selector, _ := pod.Field("spec", "nodeSelector", v1alpha1.LabelPool).(string)
		switch pool := pools[selector]; {
		case pod.Deleting():
			// On a machine that is off only a start ends it.
			wrong("pod %s is still there, on %v", pod.Name(), pod.Field("spec", "nodeName"))
		case pod.Field("status", "phase") == "Running" || pool == nil:
		case pod.Field("spec", "nodeName") != nil:
			wrong("pod %s is on %v and does not run", pod.Name(), pod.Field("spec", "nodeName"))
		case classOf(w, pool) && integer(pool.Field("status", "running")) < integer(pool.Field("spec", "poolSize")):
			wrong("pod %s waits, and pool %s is not full", pod.Name(), pool.Name())
		}
	}
	return errors.Join(append(errs, buffered(w)...)...)
}

// nodeOf returns the Node of a machine: the one that it registers as, or, if that has been
// deleted, one under the name that the operator gives it.
func (p *pooled) nodeOf(w *simtest.World, id string) simtest.Object {
	if n := w.Object("nodes", "", p.Of(id)); n != nil {
		return n
	}
	for _, n := range w.Objects("nodes") {
		if provider, _ := n.Field("spec", "providerID").(string); strings.HasSuffix(provider, "/"+id) {
			return n
		}
	}
	return nil
}

// atRest returns what is wrong about a pool and its machines.
func (p *pooled) atRest(w *simtest.World, pool simtest.Object, has []cloud.Instance) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pool "+pool.Name()+": "+format, args...))
	}
	counts := map[cloud.State]int{}
	for _, i := range has {
		n := p.nodeOf(w, i.ID)
		state := cloud.State(n.Label(v1alpha1.LabelState))
		counts[state]++
		wants := map[cloud.State]cloud.InstanceState{cloud.StateStandby: cloud.InstanceStopped, cloud.StateRunning: cloud.InstanceRunning}[state]
		if n == nil || i.State != wants || n.Label(v1alpha1.LabelPool) != pool.Name() {
			wrong("machine %s is %s, and its Node %s of pool %q is %q", i.ID, i.State, n.Name(), n.Label(v1alpha1.LabelPool), state)
		}
		if state == cloud.StateRunning && !p.Up(w, n.Name()) {
			wrong("machine %s runs and is not ready", i.ID)
		}
	}
	for state, n := range map[string]int{
		"standby": counts[cloud.StateStandby], "running": counts[cloud.StateRunning], "warmup": 0, "total": len(has),
	} {
		if told := integer(pool.Field("status", state)); told != n {
			wrong("status.%s is %d, and there are %d", state, told, n)
		}
	}
	size, minimum := integer(pool.Field("spec", "poolSize")), integer(pool.Field("spec", "minStandby"))
	// Running machines are never ended for a smaller size.
	if len(has) > max(size, counts[cloud.StateRunning]) {
		wrong("%d machines, and %d are to be there at most", len(has), size)
	}
	minimum = max(minimum, bufferedPods(w, pool.Name()))
	if wanted := min(minimum, size-counts[cloud.StateRunning]); counts[cloud.StateStandby] < wanted {
		wrong("%d on standby, and %d are to be", counts[cloud.StateStandby], wanted)
	}
	if full := fullness(w, pool); full != "" {
		wrong("%s", full)
	}
	if len(errs) > 0 {
		wrong("%v", pool.Field("status", "conditions"))
	}
	return errors.Join(errs...)
}

// consolidated returns which machine of a pool could be on standby: its pods have room on another.
// Pods ask for processors and 1 Gi each, and a machine has four processors.
func (p *pooled) consolidated(w *simtest.World, pool simtest.Object, has []cloud.Instance) error {
	if pool.Field("spec", "disruption", "consolidateAfter") == nil {
		return nil
	}
	uses := map[string]int{} // by the name of the Node, of processors
	for _, pod := range w.Objects("pods") {
		name, _ := pod.Field("spec", "nodeName").(string)
		cpu, _ := pod.Field("spec", "containers").([]any)[0].(map[string]any)["resources"].(map[string]any)["requests"].(map[string]any)["cpu"].(string)
		uses[name] += map[string]int{"500m": 500, "2100m": 2100, "3": 3000}[cpu]
	}
	for _, a := range has {
		for _, b := range has {
			from, to := p.Of(a.ID), p.Of(b.ID)
			if a.ID != b.ID && uses[from] > 0 && uses[to] > 0 && uses[from]+uses[to] <= 4000 {
				return fmt.Errorf("pool %s: the pods of %s, %dm, have room on %s, which has %dm", pool.Name(), from, uses[from], to, uses[to])
			}
		}
	}
	return nil
}

// classOf reports whether the class of a pool is there, and stays.
func classOf(w *simtest.World, pool simtest.Object) bool {
	name, _ := pool.Field("spec", "template", "nodeClassRef", "name").(string)
	class := w.Object(classesKind, "", name)
	return class != nil && !class.Deleting()
}

func conditionOf(o simtest.Object, kind string) map[string]any {
	all, _ := o.Field("status", "conditions").([]any)
	for _, each := range all {
		if c, ok := each.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}
