package operator_test

import (
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// The habits of a virtualCloud and its machines.
const (
	cloudController applytest.Disturbance = "have a cloud controller"
	clocks          applytest.Disturbance = "set clocks wrong"
	lateKubelets    applytest.Disturbance = "register late"
	listLag         applytest.Disturbance = "list machines late"
	forgetMachines  applytest.Disturbance = "forget terminated machines"
	renameKubelets  applytest.Disturbance = "register under another name"
	flapMachine     applytest.Disturbance = "silence a kubelet at"
	flapMachines    applytest.Disturbance = "silence all kubelets at"
	vanishMachine   applytest.Disturbance = "lose a machine at"
	stopByHand      applytest.Disturbance = "stop a machine at"
	endByHand       applytest.Disturbance = "terminate a machine at"
	announceEnd     applytest.Disturbance = "announce the end of a machine at"
	announceStop    applytest.Disturbance = "announce the stop of a machine at"
	relabelNode     applytest.Disturbance = "give the Node of a machine another pool at"
	throttleCloud   applytest.Disturbance = "throttle the cloud from"
	loseFromCloud   applytest.Disturbance = "lose answers of the cloud from"
	endCapacity     applytest.Disturbance = "end the capacity of a zone at"
)

// Habits are what may happen to the machines, for Scenario.Habits. replacedHabits are those of
// every world that are not true of machines: leave them out.
func (v *virtualCloud) Habits() []simtest.Habit {
	const rare = time.Minute // a spell makes it rare; it has no length
	return []simtest.Habit{
		{Name: cloudController, Does: "Nodes of machines that are off are tainted, of machines that are gone deleted.", Always: true},
		{Name: clocks, Does: "clocks of machines are up to ten minutes off.", Always: true},
		{Name: lateKubelets, Does: "One boot in three takes up to four minutes longer.", Always: true},
		{Name: forgetMachines, Does: "A terminated machine is unknown to the cloud at once.", Always: true},
		{Name: renameKubelets, Does: "One restart in five has the kubelet register another Node.", Always: true},
		{Name: listLag, Does: "The list of machines is up to 30 seconds old.", Always: true},
		{Name: flapMachine, Does: "The kubelet of a machine is silent for up to four minutes.", Spell: rare, Act: v.flapOne},
		{Name: flapMachines, Does: "The kubelets of all machines are silent for up to four minutes.", Spell: rare, Act: v.flapAll},
		{Name: vanishMachine, Does: "A machine is gone without a trace.", Spell: rare, Act: v.vanish},
		{Name: stopByHand, Does: "A person stops a machine.", Spell: rare, Act: v.stopByHand},
		{Name: endByHand, Does: "A person terminates a machine.", Spell: rare, Act: v.endByHand},
		{Name: announceEnd, Does: "The cloud announces that a machine ends, and ends it two minutes later.", Spell: rare, Act: v.announceEnd},
		{Name: announceStop, Does: "The cloud announces that a machine has to be stopped once.", Spell: rare, Act: v.announceStop},
		{Name: relabelNode, Does: "A person has a Node name a pool that does not exist, or none.", Spell: rare, Act: v.relabel},
		{Name: throttleCloud, Does: "The cloud refuses calls for up to a minute.", Spell: time.Minute},
		{Name: loseFromCloud, Does: "Half of the answers of the cloud are lost for up to a minute.", Spell: time.Minute},
		{Name: endCapacity, Does: "A zone has no capacity for up to ten minutes.", Spell: 10 * time.Minute},
	}
}

// replacedHabits are habits of every world that Habits replaces: the kubelet of a machine decides
// whether its Node is ready.
func replacedHabits() []applytest.Disturbance { return []applytest.Disturbance{simtest.FlapNode} }

func (v *virtualCloud) silence(w *simtest.World, m *virtualMachine, d time.Duration) {
	m.silent = time.Now().Add(d)
	v.unheard(w, m)
	v.during(w, m, time.Until(m.silent), func() { v.report(w, m) })
}

func (v *virtualCloud) flapOne(w *simtest.World, _ applytest.Request) {
	if m := v.pick(w.Dice("flap one"), (*virtualMachine).works); m != nil {
		w.Log("the kubelet of %s is silent", m.is.Node)
		v.silence(w, m, time.Duration(1+w.Dice("flap").Int64N(int64(4*time.Minute))))
	}
}

func (v *virtualCloud) flapAll(w *simtest.World, _ applytest.Request) {
	v.Silence(w, time.Duration(1+w.Dice("flap").Int64N(int64(4*time.Minute))))
}

// Silence makes the kubelets of all machines silent for a while.
func (v *virtualCloud) Silence(w *simtest.World, d time.Duration) {
	w.Log("all kubelets are silent for %v", d)
	for _, id := range v.ids() {
		if m := v.machines[id]; m.works() {
			v.silence(w, m, d)
		}
	}
}

func (v *virtualCloud) vanish(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "vanishes", v.Cloud.Vanish)
}

func (v *virtualCloud) stopByHand(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is stopped by hand", func(id string) { _ = v.Cloud.Shutdown(id) }) // it runs
}

func (v *virtualCloud) endByHand(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is terminated by hand", func(id string) { _ = v.Cloud.Interrupt(id) }) // it exists
}

func (v *virtualCloud) relabel(w *simtest.World, _ applytest.Request) {
	dice := w.Dice("relabel")
	m := v.pick(dice, func(m *virtualMachine) bool { return w.Object("nodes", "", m.is.Node).Label(v1alpha1.LabelPool) != "" })
	if m != nil {
		removes := dice.IntN(2) == 0
		_ = w.As("administrator").Update("nodes", "", m.is.Node, func(o simtest.Object) { // it exists
			if removes {
				labels, _ := o.Field("metadata", "labels").(map[string]any)
				delete(labels, v1alpha1.LabelPool)
			} else {
				o.Set("another", "metadata", "labels", v1alpha1.LabelPool)
			}
		})
	}
}

// byHand does something to a machine that runs and joins.
func (v *virtualCloud) byHand(w *simtest.World, what string, do func(id string)) {
	if m := v.pick(w.Dice(what), func(m *virtualMachine) bool { return m.on && m.is.Launch.Joins }); m != nil {
		w.Log("%s %s", m.is.ID, what)
		do(m.is.ID)
		v.after(w)
	}
}
