package operator_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/kubelet"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// virtualCloud is a cloud in memory whose machines become Nodes of a simulated world, in its
// virtual time. The zero value is ready. It is of one world: make one for each Scenario.
//
//	v := &virtualCloud{}
//	s.Habits = v.Habits()
//	s.Actors = []func(*simtest.World, simtest.Change){simtest.Kubelet{Up: v.Up}.Act, simtest.NodeController{}.Act}
//	s.Program: a program whose cloud is v.Provider(net)
//
// A machine joins with the labels and taints of its user data, as one of a [simulator] does,
// and its first boot does what the script of the user data says. It does not run pods: a
// simtest.Kubelet does, while Up. When it is off, its Node is Unknown 40 to 50 s later.
type virtualCloud struct {
	// Cloud has the machines. Its Fault, ListLag and Transition are set here.
	Cloud cloudtest.Fake
	// Boot is the time from running to a ready Node. Default 15 s.
	Boot time.Duration
	// Warmup is the time from the first ready Node to the first image. Default 5 s.
	Warmup time.Duration
	// Pull is the time that each image takes. Default 2 s.
	Pull time.Duration
	// Habit returns, at each boot, the faults of a machine. Nil: no faults. flapEvery is
	// ignored: see Habits.
	Habit func(booted) habit
	// Announced is what the cloud announces, for a program that reads it.
	Announced announcements
	// Hangs has calls of this operation not end until their context does.
	Hangs string
	// Away is the error of every call of a program while it is set: the cloud does nothing.
	Away error
	// OnCall is called before each call of a program that the cloud carries out, with what
	// it names. Default nil.
	OnCall func(w *simtest.World, c cloudtest.Call)

	machines map[string]*virtualMachine
}

// virtualMachine is a machine with its kubelet.
type virtualMachine struct {
	is     kubelet.Machine
	tags   map[string]string
	boot   int // counts the boots
	warmed bool

	on     bool      // the hardware
	up     bool      // the kubelet
	silent time.Time // it reports nothing until then
	habit  habit
}

// Up reports whether the kubelet of a Node works.
func (v *virtualCloud) Up(_ *simtest.World, node string) bool {
	for _, m := range v.machines {
		if m.is.Node == node {
			return m.works()
		}
	}
	return false
}

func (m *virtualMachine) works() bool {
	return m.up && !time.Now().Before(m.silent) && !m.habit.neverReady
}

// Of returns the Node name of a machine, empty if it has never run.
func (v *virtualCloud) Of(id string) string {
	if m := v.machines[id]; m != nil {
		return m.is.Node
	}
	return ""
}

// after plans to look at the machines when a change of the cloud is over.
func (v *virtualCloud) after(w *simtest.World) {
	v.step(w)
	w.After(v.Cloud.Transition+time.Millisecond, func() { v.step(w) })
}

// step handles what has changed about the machines.
func (v *virtualCloud) step(w *simtest.World) {
	if v.machines == nil {
		v.machines = map[string]*virtualMachine{}
	}
	exists := map[string]bool{}
	for _, i := range v.Cloud.Instances() {
		m := v.machines[i.ID]
		exists[i.ID] = !i.State.Ending()
		if m == nil {
			m = v.buy(i)
			v.machines[i.ID] = m
		}
		m.tags = i.Tags
		switch on := i.State == cloud.InstanceRunning; {
		case on && !m.on:
			v.boot(w, m)
		case !on && m.on:
			v.off(w, m)
		}
	}
	for _, id := range v.ids() {
		if m := v.machines[id]; !exists[id] {
			if m.on {
				v.off(w, m)
			}
			if w.Has(cloudController) && m.boot > 0 {
				v.forget(w, m)
			}
		}
	}
}

// ids are the machines, sorted.
func (v *virtualCloud) ids() []string {
	ids := make([]string, 0, len(v.machines))
	for id := range v.machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (v *virtualCloud) buy(i cloud.Instance) *virtualMachine {
	m := &virtualMachine{is: kubelet.Machine{
		ID: i.ID, Type: i.InstanceType, Zone: i.AvailabilityZone, Node: "node-" + i.ID, Arch: "amd64", IP: i.PrivateIP,
	}}
	if launch, err := kubelet.Read(v.Cloud.Config(i.ID).UserData); err == nil { // it never joins otherwise
		m.is.Launch = launch
	}
	return m
}

// boot plans what a machine does that runs now.
func (v *virtualCloud) boot(w *simtest.World, m *virtualMachine) {
	m.on, m.silent = true, time.Time{}
	m.boot++
	m.habit = habit{}
	if v.Habit != nil {
		m.habit = v.Habit(booted{id: m.is.ID, tags: m.tags, boot: m.boot})
	}
	dice := w.Dice(fmt.Sprintf("boot %d of %s", m.boot, m.is.ID))
	if w.Has(clocks) {
		m.habit.clock = virtualClock(w, m)
	}
	boot := cmp.Or(v.Boot, 15*time.Second)
	if w.Has(lateKubelets) && dice.IntN(3) == 0 {
		boot += time.Duration(dice.Int64N(int64(4 * time.Minute)))
	}
	if w.Faulty() && w.Has(renameKubelets) && m.boot > 1 && dice.IntN(5) == 0 {
		m.is.Node = fmt.Sprintf("node-%s-%d", m.is.ID, m.boot)
		w.Log("the kubelet of %s calls itself %s", m.is.ID, m.is.Node)
	}
	v.during(w, m, boot, func() {
		if m.habit.neverJoins || !m.is.Launch.Joins {
			return
		}
		m.up, m.is.BootID = true, fmt.Sprintf("%s-%d", m.is.ID, m.boot)
		v.join(w, m)
		v.beat(w, m)
		if m.is.Launch.Warms && !m.warmed && !m.habit.neverReady {
			m.warmed = true
			v.warm(w, m)
		}
	})
}

func virtualClock(w *simtest.World, m *virtualMachine) time.Duration {
	dice := w.Dice("clock of " + m.is.ID)
	return time.Duration(dice.Int64N(int64(20*time.Minute))) - 10*time.Minute
}

// during plans something that a machine does unless it is off by then.
func (v *virtualCloud) during(w *simtest.World, m *virtualMachine, d time.Duration, act func()) {
	boot := m.boot
	w.After(d, func() {
		if m.on && m.boot == boot {
			act()
		}
	})
}

// join makes the Node if it is not there, and reports its status.
func (v *virtualCloud) join(w *simtest.World, m *virtualMachine) {
	if w.Object("nodes", "", m.is.Node) == nil {
		n := object(m.is.Registration())
		delete(n, "status")
		_ = w.As("kubelet").Create(n) // it does not exist
	}
	v.report(w, m)
}

// report writes the status of the Node. A Node that is gone is not made again.
func (v *virtualCloud) report(w *simtest.World, m *virtualMachine) {
	status := m.is.Status()
	m.habit.report(&status)
	next := object(status)
	_ = w.As("kubelet").Update("nodes", "", m.is.Node, func(o simtest.Object) { // it may have gone
		was := o["status"]
		o["status"] = map[string]any(next)
		keepTransitions(o, simtest.Object{"status": was})
	})
	if w.Has(cloudController) {
		v.tainted(w, m, false)
	}
}

// beat reports the status every five minutes, as a kubelet does.
func (v *virtualCloud) beat(w *simtest.World, m *virtualMachine) {
	v.during(w, m, 5*time.Minute, func() {
		if !time.Now().Before(m.silent) {
			v.report(w, m)
		}
		v.beat(w, m)
	})
}

// warm is what the script of the user data does.
func (v *virtualCloud) warm(w *simtest.World, m *virtualMachine) {
	took := cmp.Or(v.Warmup, 5*time.Second) + time.Duration(len(m.is.Launch.Images))*cmp.Or(v.Pull, 2*time.Second)
	v.during(w, m, took, func() {
		if m.habit.neverAttests {
			return
		}
		text, err := json.Marshal(m.habit.attestation(m.is))
		if err != nil {
			w.Blame("attestation of %s: %v", m.is.Node, err)
			return
		}
		_ = w.As("user data").Update("nodes", "", m.is.Node, func(o simtest.Object) { // it may have gone
			o.Set(string(text), "metadata", "annotations", v1alpha1.AnnotationAttested)
		})
		if m.is.Launch.Stops && !m.habit.neverStops {
			_ = v.Cloud.Shutdown(m.is.ID) // it runs
			v.after(w)
		}
	})
}

// off plans what others do about the Node of a machine that does not run any more.
func (v *virtualCloud) off(w *simtest.World, m *virtualMachine) {
	m.on, m.up = false, false
	v.unheard(w, m)
	if w.Has(cloudController) {
		w.After(time.Duration(1+w.Dice("cloud controller "+m.is.ID).IntN(20_000))*time.Millisecond, func() {
			if !m.on {
				v.tainted(w, m, true)
			}
		})
	}
}

// unheard makes the Node of a machine Unknown if it is not heard for 40 s.
func (v *virtualCloud) unheard(w *simtest.World, m *virtualMachine) {
	boot := m.boot
	w.After(40*time.Second+time.Duration(w.Dice("node monitor "+m.is.ID).IntN(10_000))*time.Millisecond, func() {
		if m.boot != boot || m.up && !time.Now().Before(m.silent) {
			return
		}
		_ = w.As("node controller").Update("nodes", "", m.is.Node, func(o simtest.Object) { // it may have gone
			setReady(o, corev1.ConditionUnknown)
		})
	})
}

// tainted sets or removes the taint of a machine that is off, as a cloud-controller-manager
// does.
func (v *virtualCloud) tainted(w *simtest.World, m *virtualMachine, off bool) {
	const key = "node.cloudprovider.kubernetes.io/shutdown"
	_ = w.As("cloud-controller-manager").Update("nodes", "", m.is.Node, func(o simtest.Object) { // it may have gone
		all, _ := o.Field("spec", "taints").([]any)
		all = slices.DeleteFunc(all, func(each any) bool { t, _ := each.(map[string]any); return t["key"] == key })
		if off {
			all = append(all, map[string]any{"key": key, "effect": "NoSchedule"})
		}
		o.Set(all, "spec", "taints")
	})
}

// forget deletes the Node of a machine that is gone, as a cloud-controller-manager does.
func (v *virtualCloud) forget(w *simtest.World, m *virtualMachine) {
	w.After(time.Duration(1+w.Dice("cloud controller deletes "+m.is.ID).IntN(60_000))*time.Millisecond, func() {
		if w.Object("nodes", "", m.is.Node) != nil {
			_ = w.As("cloud-controller-manager").Delete("nodes", "", m.is.Node) // it exists
		}
	})
}

// object is a Kubernetes object as the server has it.
func object(of any) simtest.Object {
	o := simtest.Object{}
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		panic(err) // an API type that is no JSON
	}
	return o
}

func conditions(o simtest.Object) map[string]simtest.Object {
	all := map[string]simtest.Object{}
	list, _ := o.Field("status", "conditions").([]any)
	for _, each := range list {
		c, _ := each.(map[string]any)
		all[fmt.Sprint(c["type"])] = c
	}
	return all
}

// keepTransitions takes the times of conditions that have not changed from an older status, and
// its conditions that the newer one does not have.
func keepTransitions(o, before simtest.Object) {
	now, was := conditions(o), conditions(before)
	list, _ := o.Field("status", "conditions").([]any)
	for name, c := range was {
		switch is, ok := now[name]; {
		case !ok:
			list = append(list, map[string]any(c))
		case is["status"] == c["status"]:
			is["lastTransitionTime"] = c["lastTransitionTime"]
		}
	}
	o.Set(list, "status", "conditions")
}

func setReady(o simtest.Object, status corev1.ConditionStatus) {
	c := conditions(o)[string(corev1.NodeReady)]
	if c == nil || c["status"] == string(status) {
		return
	}
	c["status"], c["lastTransitionTime"] = string(status), time.Now().UTC().Format(time.RFC3339)
}

// pick draws a machine that fits, nil if there is none.
func (v *virtualCloud) pick(dice *rand.Rand, fits func(*virtualMachine) bool) *virtualMachine {
	var all []*virtualMachine
	for _, id := range v.ids() {
		if fits(v.machines[id]) {
			all = append(all, v.machines[id])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[dice.IntN(len(all))]
}
