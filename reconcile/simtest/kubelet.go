package simtest

import (
	"fmt"
	"slices"
	"time"
)

// Kubelet is an actor that runs pods, as a scheduler and the kubelets of a cluster
// do together: a Node becomes ready, a pod gets a node, runs, ends if it is one that
// ends, and goes once it is deleted. A pod gets a Node that is ready, whose taints it
// tolerates, that its nodeSelector admits, and that has room for its requests of cpu and
// memory. Where there is none, its condition PodScheduled says so. In a world without the
// kind nodes there is one node. While the world is faulty, all of it takes longer, and
// some pods are killed.
// Assign its method Act to Scenario.Actors; the zero value is ready.
//
//	Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act},
type Kubelet struct {
	// Runs returns how long the containers of a pod run, and whether they succeed.
	// Default nil: those of a pod with the restart policy Always run until they are
	// deleted, and others for up to a minute, of which one in ten fails. A duration
	// of 0 is for ever.
	Runs func(w *World, pod Object) (time.Duration, bool)
	// Kills is how many of a hundred pods are killed while the world is faulty, as by
	// an eviction or a lack of memory. Default 0.
	Kills int
	// Up reports whether the kubelet of a Node works. Pods start and go only while it does,
	// and something else makes Nodes ready, such as the machines of a cloud. Default nil:
	// all work, and a Node becomes ready some seconds after it was made.
	Up func(w *World, node string) bool
}

// node is where pods run in a world without Nodes.
const node = "node-1"

// Act is called after each write.
func (k Kubelet) Act(w *World, c Change) {
	object := c.After
	if object == nil {
		object = c.Before
	}
	if object["apiVersion"] != "v1" {
		return
	}
	switch object["kind"] {
	case "Node":
		k.node(w, c)
	case "Pod":
		if c.After != nil {
			k.pod(w, c)
		}
		if frees(c) {
			k.schedule(w, "room on "+c.Before.text("spec", "nodeName"))
		}
	}
}

// frees reports whether a change of a pod leaves room on a Node.
func frees(c Change) bool {
	return c.Before != nil && c.Before.text("spec", "nodeName") != "" && !ended(c.Before) && (c.After == nil || ended(c.After))
}

func ended(pod Object) bool {
	phase := pod.text("status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}

// node is called after each write of a Node.
func (k Kubelet) node(w *World, c Change) {
	n := c.After
	if n == nil {
		return
	}
	if c.Before == nil && k.Up == nil {
		w.After(time.Duration(1+w.Dice("kubelet joins "+n.Name()).IntN(20_000))*time.Millisecond, func() {
			_ = w.As("kubelet").Update("nodes", "", n.Name(), func(o Object) { setCondition(o, "Ready", "True") }) // it may have gone
		})
	}
	ready := n.condition("Ready").text("status") == "True"
	if ready && (c.Before == nil || placing(c.Before) != placing(n)) {
		k.schedule(w, "node "+n.Name())
	}
	const info, boot = "nodeInfo", "bootID"
	if k.Up == nil || !ready ||
		c.Before != nil && c.Before.condition("Ready").text("status") == "True" &&
			c.Before.text("status", info, boot) == n.text("status", info, boot) {
		return
	}
	for _, pod := range w.objects("pods") {
		if pod.text("spec", "nodeName") == n.Name() {
			k.handle(w, pod)
		}
	}
}

// schedule looks for Nodes for the pods that have none.
func (k Kubelet) schedule(w *World, why string) {
	w.After(time.Duration(1+w.Dice("scheduler "+why).IntN(1000))*time.Millisecond, func() {
		for _, pod := range w.objects("pods") {
			if pod.text("spec", "nodeName") == "" && !pod.Deleting() && !ended(pod) {
				k.bind(w, pod)
			}
		}
	})
}

// pod is called after each write of a pod.
func (k Kubelet) pod(w *World, c Change) {
	pod := c.After
	var before Object
	if c.Before != nil && c.Before.UID() == pod.UID() && c.By != backup { // which may have an older phase
		before = c.Before
	}
	became := func(path ...string) bool {
		return pod.text(path...) != "" && (before == nil || before.text(path...) == "")
	}
	switch {
	case became("metadata", "deletionTimestamp"):
		k.handle(w, pod)
	case pod.Deleting():
	case before == nil && pod.text("spec", "nodeName") == "":
		k.later(w, "binds", time.Second, pod, func(live Object) {
			if !live.Deleting() {
				k.bind(w, live)
			}
		})
	case became("spec", "nodeName"):
		k.handle(w, pod)
	case pod.text("status", "phase") == "Running" && (before == nil || before.text("status", "phase") != "Running"):
		k.run(w, pod)
	}
}

// later does something with a pod that is still there then.
func (k Kubelet) later(w *World, what string, most time.Duration, pod Object, act func(live Object)) {
	if w.faulty() {
		most *= 5
	}
	delay := time.Duration(1 + w.Dice("kubelet "+what+" "+pod.Namespace()+"/"+pod.Name()).Int64N(int64(most)))
	w.After(delay, func() {
		if live := w.object("pods", pod.Namespace(), pod.Name()); live != nil && live.UID() == pod.UID() {
			act(live)
		}
	})
}

// handle starts a pod that has a Node, or ends it if it is deleted. A kubelet that does not
// work does so once it works again.
func (k Kubelet) handle(w *World, pod Object) {
	up := func(live Object) bool {
		name := live.text("spec", "nodeName")
		return k.Up == nil || name == "" || k.Up(w, name)
	}
	if pod.Deleting() {
		k.later(w, "stops", 5*time.Second, pod, func(live Object) {
			if up(live) {
				k.remove(w, live)
			}
		})
		return
	}
	k.later(w, "starts", 5*time.Second, pod, func(live Object) {
		if up(live) {
			k.start(w, live)
		}
	})
}

// bind gives a pod a Node that takes it, or reports that there is none.
func (k Kubelet) bind(w *World, pod Object) {
	name := node
	if required := pod.requiredNode(); required != "" {
		name = required
	} else if _, ok := w.server.kind("", "v1", "nodes"); ok {
		names := places(w, pod)
		if len(names) == 0 {
			if pod.condition("PodScheduled").text("status") != "False" {
				_ = w.As("scheduler").Update("pods", pod.Namespace(), pod.Name(), func(o Object) { // it exists
					setCondition(o, "PodScheduled", "False")
					o.condition("PodScheduled")["reason"] = "Unschedulable"
				})
			}
			return
		}
		name = names[w.Dice("scheduler "+pod.Name()).IntN(len(names))]
	}
	_ = w.As("scheduler").Update("pods", pod.Namespace(), pod.Name(), func(o Object) { // it exists
		o.Set(name, "spec", "nodeName")
		setCondition(o, "PodScheduled", "True")
		delete(o.condition("PodScheduled"), "reason")
	})
}

func (k Kubelet) start(w *World, pod Object) {
	if phase := pod.text("status", "phase"); phase != "" && phase != "Pending" || pod.Deleting() {
		return
	}
	_ = w.As("kubelet").Update("pods", pod.Namespace(), pod.Name(), func(o Object) { // it exists
		o.Set("Running", "status", "phase")
		o.Set(time.Now().UTC().Format(time.RFC3339), "status", "startTime")
		ip := address(w, pod)
		o.Set(ip, "status", "podIP")
		o.Set([]any{map[string]any{"ip": ip}}, "status", "podIPs")
		setCondition(o, "Ready", "True")
		setCondition(o, "ContainersReady", "True")
	})
}

// requiredNode is the node that the affinity of a pod of a DaemonSet names. Such a
// pod also runs on a node that is not ready or takes no others.
func (o Object) requiredNode() string {
	path := []string{"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"}
	for _, each := range o.list(path...) {
		term, _ := each.(map[string]any)
		for _, each := range Object(term).list("matchFields") {
			field, _ := each.(map[string]any)
			if values := Object(field).list("values"); field["key"] == "metadata.name" && len(values) == 1 {
				return fmt.Sprint(values[0])
			}
		}
	}
	return ""
}

// address draws an IP address that no other pod has.
func address(w *World, pod Object) string {
	dice := w.Dice("kubelet address " + pod.Namespace() + "/" + pod.Name())
	for {
		ip := fmt.Sprintf("10.0.%d.%d", dice.IntN(256), 1+dice.IntN(254))
		taken := func(o Object) bool { return o.text("status", "podIP") == ip }
		if !slices.ContainsFunc(w.objects("pods"), taken) {
			return ip
		}
	}
}

// run plans how a pod that runs ends.
func (k Kubelet) run(w *World, pod Object) {
	dice := w.Dice("kubelet runs " + pod.Namespace() + "/" + pod.Name())
	d, ok := time.Duration(0), true
	switch policy := pod.text("spec", "restartPolicy"); {
	case k.Runs != nil:
		d, ok = k.Runs(w, pod)
	case policy != "" && policy != "Always":
		d, ok = time.Duration(1+dice.Int64N(int64(time.Minute))), dice.IntN(10) > 0
	}
	if w.faulty() && dice.IntN(100) < k.Kills {
		d, ok = time.Duration(1+dice.Int64N(int64(10*time.Second))), false
	}
	if d == 0 {
		return
	}
	w.After(d, func() {
		if live := w.object("pods", pod.Namespace(), pod.Name()); live != nil && live.UID() == pod.UID() {
			k.end(w, live, ok)
		}
	})
}

// end lets the containers of a pod end.
func (k Kubelet) end(w *World, pod Object, ok bool) {
	if ended(pod) {
		return
	}
	phase := map[bool]string{true: "Succeeded", false: "Failed"}[ok]
	_ = w.As("kubelet").Update("pods", pod.Namespace(), pod.Name(), func(o Object) { // it exists
		o.Set(phase, "status", "phase")
		setCondition(o, "Ready", "False")
		setCondition(o, "ContainersReady", "False")
	})
}

// remove ends what is deleted. A pod with finalizers stays, and has ended.
func (k Kubelet) remove(w *World, pod Object) {
	k.end(w, pod, false)
	_ = w.As("kubelet").DeleteNow("pods", pod.Namespace(), pod.Name()) // it may have gone
}

// condition returns a condition of the status, nil if there is none of that type.
func (o Object) condition(name string) Object {
	for _, each := range o.list("status", "conditions") {
		if c, ok := each.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

// setCondition sets a condition, and the time of its transition if it changes.
func setCondition(o Object, name, status string) {
	now := time.Now().UTC().Format(time.RFC3339)
	if c := o.condition(name); c != nil {
		if c["status"] != status {
			c["status"], c["lastTransitionTime"] = status, now
		}
		return
	}
	all := o.list("status", "conditions")
	o.Set(append(all, map[string]any{"type": name, "status": status, "lastTransitionTime": now}), "status", "conditions")
}
