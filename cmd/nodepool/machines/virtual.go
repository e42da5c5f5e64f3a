package machines

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
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Virtual is a cloud in memory whose machines become Nodes of a simulated world, in its
// virtual time. The zero value is ready. It is of one world: make one for each Scenario.
//
//	v := &machines.Virtual{}
//	s.Habits = v.Habits()
//	s.Actors = []func(*simtest.World, simtest.Change){simtest.Kubelet{Up: v.Up}.Act, simtest.NodeController{}.Act}
//	s.Program: a program whose cloud is v.Provider(net)
//
// A machine joins with the labels and taints of its user data, like a machine of a [Simulator],
// and its first boot does what the script of the user data says. It does not run pods: a
// simtest.Kubelet does, while Up. When it is off, its Node is Unknown 40 to 50 s later.
type Virtual struct {
	// Cloud has the machines. Its Fault, ListLag and Transition are set by Virtual.
	Cloud cloudtest.Fake
	// Boot is the time from running to a ready Node. Default 15 s.
	Boot time.Duration
	// Warmup is the time from the first ready Node to the first image. Default 5 s.
	Warmup time.Duration
	// Pull is the time that each image takes. Default 2 s.
	Pull time.Duration
	// Habit returns, at each boot, the faults of a machine. Nil: no faults. FlapEvery is
	// ignored: see Habits.
	Habit func(Machine) Habit
	// Announced is what the cloud announces, for a program that reads it.
	Announced Announcements
	// OnCall is called before each call of a program that the cloud carries out, with what
	// it names. Default nil.
	OnCall func(w *simtest.World, c cloudtest.Call)

	machines map[string]*virtual
}

// virtual is a machine with its kubelet.
type virtual struct {
	machine

	on     bool      // the hardware
	up     bool      // the kubelet
	silent time.Time // it reports nothing until then
	habit  Habit
}

// Up reports whether the kubelet of a Node works.
func (v *Virtual) Up(_ *simtest.World, node string) bool {
	for _, m := range v.machines {
		if m.node == node {
			return m.works()
		}
	}
	return false
}

func (m *virtual) works() bool { return m.up && !time.Now().Before(m.silent) && !m.habit.NeverReady }

// Of returns the Node name of a machine, empty if it has never run.
func (v *Virtual) Of(id string) string {
	if m := v.machines[id]; m != nil {
		return m.node
	}
	return ""
}

// after plans to look at the machines when a change of the cloud is over.
func (v *Virtual) after(w *simtest.World) {
	v.step(w)
	w.After(v.Cloud.Transition+time.Millisecond, func() { v.step(w) })
}

// step handles what has changed about the machines.
func (v *Virtual) step(w *simtest.World) {
	if v.machines == nil {
		v.machines = map[string]*virtual{}
	}
	exists := map[string]bool{}
	for _, i := range v.Cloud.Instances() {
		m := v.machines[i.ID]
		exists[i.ID] = !i.State.Ending()
		if m == nil {
			m = v.buy(i)
			v.machines[i.ID] = m
		}
		m.Tags = i.Tags
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
			if w.Has(CloudController) && m.Boot > 0 {
				v.forget(w, m)
			}
		}
	}
}

// ids are the machines, sorted.
func (v *Virtual) ids() []string {
	ids := make([]string, 0, len(v.machines))
	for id := range v.machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (v *Virtual) buy(i cloud.Instance) *virtual {
	m := &virtual{machine: machine{node: "node-" + i.ID, arch: "amd64", ip: i.PrivateIP}}
	m.ID, m.Type, m.Zone = i.ID, i.InstanceType, i.AvailabilityZone
	if launch, err := parse(v.Cloud.Config(i.ID).UserData); err == nil { // it never joins otherwise
		m.launch = launch
	}
	return m
}

// boot plans what a machine does that runs now.
func (v *Virtual) boot(w *simtest.World, m *virtual) {
	m.on, m.silent = true, time.Time{}
	m.Boot++
	m.habit = Habit{}
	if v.Habit != nil {
		m.habit = v.Habit(m.Machine)
	}
	dice := w.Dice(fmt.Sprintf("boot %d of %s", m.Boot, m.ID))
	if w.Has(Clocks) {
		m.habit.Clock = clockOf(w, m)
	}
	boot := cmp.Or(v.Boot, 15*time.Second)
	if w.Has(LateKubelets) && dice.IntN(3) == 0 {
		boot += time.Duration(dice.Int64N(int64(4 * time.Minute)))
	}
	if w.Faulty() && w.Has(RenameKubelets) && m.Boot > 1 && dice.IntN(5) == 0 {
		m.node = fmt.Sprintf("node-%s-%d", m.ID, m.Boot)
		w.Log("the kubelet of %s calls itself %s", m.ID, m.node)
	}
	v.during(w, m, boot, func() {
		if m.habit.NeverJoins || !m.launch.joins {
			return
		}
		m.up, m.bootID = true, fmt.Sprintf("%s-%d", m.ID, m.Boot)
		v.join(w, m)
		v.beat(w, m)
		if m.launch.warms && !m.warmed && !m.habit.NeverReady {
			m.warmed = true
			v.warm(w, m)
		}
	})
}

func clockOf(w *simtest.World, m *virtual) time.Duration {
	dice := w.Dice("clock of " + m.ID)
	return time.Duration(dice.Int64N(int64(20*time.Minute))) - 10*time.Minute
}

// during plans something that a machine does unless it is off by then.
func (v *Virtual) during(w *simtest.World, m *virtual, d time.Duration, act func()) {
	boot := m.Boot
	w.After(d, func() {
		if m.on && m.Boot == boot {
			act()
		}
	})
}

// join makes the Node if it is not there, and reports its status.
func (v *Virtual) join(w *simtest.World, m *virtual) {
	if w.Object("nodes", "", m.node) == nil {
		n := object(m.registration())
		delete(n, "status")
		_ = w.As("kubelet").Create(n) // it does not exist
	}
	v.report(w, m)
}

// report writes the status of the Node. A Node that is gone is not made again.
func (v *Virtual) report(w *simtest.World, m *virtual) {
	status, err := json.Marshal(m.status(m.habit))
	if err != nil {
		w.Blame("status of %s: %v", m.node, err)
		return
	}
	var next simtest.Object
	if err := json.Unmarshal(status, &next); err != nil {
		w.Blame("status of %s: %v", m.node, err)
		return
	}
	_ = w.As("kubelet").Update("nodes", "", m.node, func(o simtest.Object) { // it may have gone
		was := o["status"]
		o["status"] = map[string]any(next)
		keepTransitions(o, simtest.Object{"status": was})
	})
	if w.Has(CloudController) {
		v.tainted(w, m, false)
	}
}

// beat reports the status every five minutes, as a kubelet does.
func (v *Virtual) beat(w *simtest.World, m *virtual) {
	v.during(w, m, 5*time.Minute, func() {
		if !time.Now().Before(m.silent) {
			v.report(w, m)
		}
		v.beat(w, m)
	})
}

// warm is what the script of the user data does.
func (v *Virtual) warm(w *simtest.World, m *virtual) {
	took := cmp.Or(v.Warmup, 5*time.Second) + time.Duration(len(m.launch.images))*cmp.Or(v.Pull, 2*time.Second)
	v.during(w, m, took, func() {
		if m.habit.NeverAttests {
			return
		}
		attestation := nodes.Attestation{BootID: m.bootID}
		for _, name := range m.launch.images {
			if slices.Contains(m.habit.BadImages, name) {
				attestation.Failed = append(attestation.Failed, name)
			} else {
				attestation.Images = append(attestation.Images, name)
			}
		}
		text, err := json.Marshal(attestation)
		if err != nil {
			w.Blame("attestation of %s: %v", m.node, err)
			return
		}
		_ = w.As("user data").Update("nodes", "", m.node, func(o simtest.Object) { // it may have gone
			o.Set(string(text), "metadata", "annotations", v1alpha1.AnnotationAttested)
		})
		if m.launch.stops && !m.habit.NeverStops {
			_ = v.Cloud.Shutdown(m.ID) // it runs
			v.after(w)
		}
	})
}

// off plans what others do about the Node of a machine that does not run any more.
func (v *Virtual) off(w *simtest.World, m *virtual) {
	m.on, m.up = false, false
	v.unheard(w, m)
	if w.Has(CloudController) {
		w.After(time.Duration(1+w.Dice("cloud controller "+m.ID).IntN(20_000))*time.Millisecond, func() {
			if !m.on {
				v.tainted(w, m, true)
			}
		})
	}
}

// unheard makes the Node of a machine Unknown if it is not heard for 40 s.
func (v *Virtual) unheard(w *simtest.World, m *virtual) {
	boot := m.Boot
	w.After(40*time.Second+time.Duration(w.Dice("node monitor "+m.ID).IntN(10_000))*time.Millisecond, func() {
		if m.Boot != boot || m.up && !time.Now().Before(m.silent) {
			return
		}
		_ = w.As("node controller").Update("nodes", "", m.node, func(o simtest.Object) { // it may have gone
			setReady(o, corev1.ConditionUnknown)
		})
	})
}

// tainted sets or removes the taint of a machine that is off, as a cloud-controller-manager
// does.
func (v *Virtual) tainted(w *simtest.World, m *virtual, off bool) {
	const key = "node.cloudprovider.kubernetes.io/shutdown"
	_ = w.As("cloud-controller-manager").Update("nodes", "", m.node, func(o simtest.Object) { // it may have gone
		all, _ := o.Field("spec", "taints").([]any)
		all = slices.DeleteFunc(all, func(each any) bool { t, _ := each.(map[string]any); return t["key"] == key })
		if off {
			all = append(all, map[string]any{"key": key, "effect": "NoSchedule"})
		}
		o.Set(all, "spec", "taints")
	})
}

// forget deletes the Node of a machine that is gone, as a cloud-controller-manager does.
func (v *Virtual) forget(w *simtest.World, m *virtual) {
	w.After(time.Duration(1+w.Dice("cloud controller deletes "+m.ID).IntN(60_000))*time.Millisecond, func() {
		if w.Object("nodes", "", m.node) != nil {
			_ = w.As("cloud-controller-manager").Delete("nodes", "", m.node) // it exists
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
func (v *Virtual) pick(dice *rand.Rand, fits func(*virtual) bool) *virtual {
	var all []*virtual
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
