package machines

import (
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// The habits of a Virtual cloud and its machines.
const (
	CloudController applytest.Disturbance = "have a cloud controller"
	Clocks          applytest.Disturbance = "set clocks wrong"
	LateKubelets    applytest.Disturbance = "register late"
	ListLag         applytest.Disturbance = "list machines late"
	ForgetMachines  applytest.Disturbance = "forget terminated machines"
	RenameKubelets  applytest.Disturbance = "register under another name"
	FlapMachine     applytest.Disturbance = "silence a kubelet at"
	FlapMachines    applytest.Disturbance = "silence all kubelets at"
	VanishMachine   applytest.Disturbance = "lose a machine at"
	StopByHand      applytest.Disturbance = "stop a machine at"
	EndByHand       applytest.Disturbance = "terminate a machine at"
	AnnounceEnd     applytest.Disturbance = "announce the end of a machine at"
	AnnounceStop    applytest.Disturbance = "announce the stop of a machine at"
	RelabelNode     applytest.Disturbance = "give the Node of a machine another pool at"
	ThrottleCloud   applytest.Disturbance = "throttle the cloud from"
	LoseFromCloud   applytest.Disturbance = "lose answers of the cloud from"
	EndCapacity     applytest.Disturbance = "end the capacity of a zone at"
)

// Habits are what may happen to the machines, for Scenario.Habits. Replaced are habits of
// every world that are not true of machines: leave them out.
func (v *Virtual) Habits() []simtest.Habit {
	const rare = time.Minute // a spell makes it rare; it has no length
	return []simtest.Habit{
		{Name: CloudController, Does: "Nodes of machines that are off are tainted, of machines that are gone deleted.", Always: true},
		{Name: Clocks, Does: "Clocks of machines are up to ten minutes off.", Always: true},
		{Name: LateKubelets, Does: "One boot in three takes up to four minutes longer.", Always: true},
		{Name: ForgetMachines, Does: "A terminated machine is unknown to the cloud at once.", Always: true},
		{Name: RenameKubelets, Does: "One restart in five has the kubelet register another Node.", Always: true},
		{Name: ListLag, Does: "The list of machines is up to 30 seconds old.", Always: true},
		{Name: FlapMachine, Does: "The kubelet of a machine is silent for up to four minutes.", Spell: rare, Act: v.flapOne},
		{Name: FlapMachines, Does: "The kubelets of all machines are silent for up to four minutes.", Spell: rare, Act: v.flapAll},
		{Name: VanishMachine, Does: "A machine is gone without a trace.", Spell: rare, Act: v.vanish},
		{Name: StopByHand, Does: "A person stops a machine.", Spell: rare, Act: v.stopByHand},
		{Name: EndByHand, Does: "A person terminates a machine.", Spell: rare, Act: v.endByHand},
		{Name: AnnounceEnd, Does: "The cloud announces that a machine ends, and ends it two minutes later.", Spell: rare, Act: v.announceEnd},
		{Name: AnnounceStop, Does: "The cloud announces that a machine has to be stopped once.", Spell: rare, Act: v.announceStop},
		{Name: RelabelNode, Does: "A person has a Node name a pool that does not exist, or none.", Spell: rare, Act: v.relabel},
		{Name: ThrottleCloud, Does: "The cloud refuses calls for up to a minute.", Spell: time.Minute},
		{Name: LoseFromCloud, Does: "Half of the answers of the cloud are lost for up to a minute.", Spell: time.Minute},
		{Name: EndCapacity, Does: "A zone has no capacity for up to ten minutes.", Spell: 10 * time.Minute},
	}
}

// Replaced are habits of every world that Habits replaces: the kubelet of a machine decides
// whether its Node is ready.
func Replaced() []applytest.Disturbance { return []applytest.Disturbance{simtest.FlapNode} }

func (v *Virtual) silence(w *simtest.World, m *virtual, d time.Duration) {
	m.silent = time.Now().Add(d)
	v.unheard(w, m)
	v.during(w, m, time.Until(m.silent), func() { v.report(w, m) })
}

func (v *Virtual) flapOne(w *simtest.World, _ applytest.Request) {
	if m := v.pick(w.Dice("flap one"), (*virtual).works); m != nil {
		w.Log("the kubelet of %s is silent", m.node)
		v.silence(w, m, time.Duration(1+w.Dice("flap").Int64N(int64(4*time.Minute))))
	}
}

func (v *Virtual) flapAll(w *simtest.World, _ applytest.Request) {
	v.Silence(w, time.Duration(1+w.Dice("flap").Int64N(int64(4*time.Minute))))
}

// Silence makes the kubelets of all machines silent for a while.
func (v *Virtual) Silence(w *simtest.World, d time.Duration) {
	w.Log("all kubelets are silent for %v", d)
	for _, id := range v.ids() {
		if m := v.machines[id]; m.works() {
			v.silence(w, m, d)
		}
	}
}

func (v *Virtual) vanish(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "vanishes", v.Cloud.Vanish)
}

func (v *Virtual) stopByHand(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is stopped by hand", func(id string) { _ = v.Cloud.Shutdown(id) }) // it runs
}

func (v *Virtual) endByHand(w *simtest.World, _ applytest.Request) {
	v.byHand(w, "is terminated by hand", func(id string) { _ = v.Cloud.Interrupt(id) }) // it exists
}

func (v *Virtual) relabel(w *simtest.World, _ applytest.Request) {
	dice := w.Dice("relabel")
	m := v.pick(dice, func(m *virtual) bool { return w.Object("nodes", "", m.node).Label(v1alpha1.LabelPool) != "" })
	if m != nil {
		removes := dice.IntN(2) == 0
		_ = w.As("administrator").Update("nodes", "", m.node, func(o simtest.Object) { // it exists
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
func (v *Virtual) byHand(w *simtest.World, what string, do func(id string)) {
	if m := v.pick(w.Dice(what), func(m *virtual) bool { return m.on && m.launch.joins }); m != nil {
		w.Log("%s %s", m.ID, what)
		do(m.ID)
		v.after(w)
	}
}
