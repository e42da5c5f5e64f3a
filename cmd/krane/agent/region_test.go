package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// twoAgents is D24 and D32: two agents of one region, as while one replaces the other. One works, and
// the other says that it does not, and writes nothing until the first is silent.
func twoAgents(b *bench) {
	once := deployment("once")
	once.K8SNamespace = "a"
	b.want(append(all("api"), once)...)
	other := b.worker()
	away := map[*bench]*atomic.Bool{b: {}, other: {}}
	for agent, away := range away {
		agent.startWith(func(applytest.Request) applytest.Fault { return applytest.Fault{Lose: away.Load()} })
	}
	b.eventually("all of it runs", func() bool { return b.running("web", "api", "once") })
	b.synced(1)
	other.synced(1)
	require.Empty(b, append(b.deletes(), other.deletes()...))
	holder, rest := oneWorks(b, other)
	b.rests()
	// Both receive the same, and one applies it.
	rest.net.Reset()
	web := deployment("web")
	web.Image = "registry.example.com/web:2"
	b.want(web, deployment("late"))
	b.gone(deployment("api"), once)
	b.eventually("both are done", func() bool { return b.lag() == "0 0 0" && other.lag() == "0 0 0" })
	b.eventually("the cluster matches", func() bool { return b.image("web") == web.GetImage() && b.running("late") && b.away("api") })
	for _, deletion := range holder.deletes() {
		require.Regexp(b, "api|once", deletion)
	}
	b.setImage("web")
	b.eventually("the image is back", func() bool { return b.image("web") == web.GetImage() })
	require.True(b, b.running("web"))
	// Not even what the first cannot do.
	b.plant("orphan", "krane", ours("d_orphan"))
	away[holder].Store(true)
	holder.net.Cut()
	b.setImage("web")
	b.pause(2 * lists)
	require.True(b, b.exists(replicaSets, "orphan"))
	require.True(b, b.namespaceLives("a"))
	require.NotEqual(b, b.image("web"), web.GetImage())
	require.Empty(b, rest.net.Writes(), "it stays quiet")
	away[holder].Store(false)
	b.within(2*lists, "the orphan goes", func() bool { return b.away("orphan") && !b.namespaceLives("a") })
	b.eventually("the image is back", func() bool { return b.image("web") == web.GetImage() })
	b.rests()
	require.Equal(b, "0 0", b.metric("contested_objects")+" "+other.metric("contested_objects"))
	require.Empty(b, rest.net.Writes(), "it stays quiet")

	// What comes while neither works is done by the other once it takes over, deletions and repairs, too.
	holder.stop()
	b.gone(deployment("late"))
	b.want(deployment("later"))
	b.setImage("web")
	b.eventually("the other takes over", func() bool { return rest.metric("superseded") == "0" })
	b.eventually("the one that stays goes on", func() bool {
		return b.away("late") && b.running("later") && b.image("web") == web.GetImage()
	})
}

// refusedBeforeTheOther has an agent take over what came while another worked, and what that one could not do either.
func refusedBeforeTheOther(b *bench) {
	b.person(func(c simtest.Client) error { return c.Create(object("v1", "Namespace", "", namespace)) })
	b.person(func(c simtest.Client) error {
		return c.Create(object("v1", "ServiceAccount", namespace, "deploy-d-taken"))
	})
	b.want(all()...)
	other := b.worker()
	b.start()
	other.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	holder, rest := oneWorks(b, other)
	b.want(deployment("taken"))
	b.within(15*time.Minute, "it is reported", func() bool { return len(b.problems()) == 1 })
	holder.stop()
	b.eventually("the other takes over", func() bool { return rest.metric("superseded") == "0" })
	b.eventually("which reports what it knows", func() bool { return len(b.problems()) == 0 })
	b.pause(5 * time.Minute)
	require.Empty(b, b.problems(), "it may end by itself")
	b.within(10*time.Minute, "and finds it out", func() bool { return len(b.problems()) == 1 })
	require.Regexp(b, `^deployments/`+namespace+`/taken: .*ServiceAccount.*deploy-d-taken`, b.problems()[0])
	b.person(func(c simtest.Client) error { return c.Delete("serviceaccounts", namespace, "deploy-d-taken") })
	b.later("it runs once it can", func() bool { return b.running("taken") })
	b.within(time.Minute, "and is no problem any more", func() bool { return len(b.problems()) == 0 })
}

// idsOfOneName has two deployments whose ids make the same names of account and Secret. The first keeps them, also over
// a restart and the deletion of the second, which is reported and may have them once the first is gone.
func idsOfOneName(b *bench) {
	first, second := deployment("first"), deployment("second")
	first.DeploymentId, second.DeploymentId = "d_same", "D-Same"
	owner := func() string { return b.object("serviceaccounts", "deploy-d-same").Label("unkey.com/deployment.id") }
	reported := func() bool { return len(b.problems()) == 1 && b.problems()[0] != "" }
	b.want(all()...)
	b.want(first)
	b.start()
	b.eventually("the first runs", func() bool { return b.running("web", "first") })
	for range 2 {
		b.want(second)
		b.within(15*time.Minute, "the second is reported", reported)
		require.Regexp(b, "^deployments/"+namespace+"/second: .*deploy-d-same.* d_same.*another id", b.problems()[0])
		b.stop()
		b.start()
		b.within(15*time.Minute, "the second is reported again", reported)
		require.Equal(b, "d_same", owner())
		require.False(b, b.exists(replicaSets, "second"))
		b.gone(second)
		b.eventually("nothing is reported", func() bool { return len(b.problems()) == 0 })
		require.Equal(b, "d_same", owner())
		require.True(b, b.running("first"))
		require.NotContains(b, strings.Join(b.deletes(), " "), "deploy-d-same")
	}
	b.gone(first)
	b.eventually("the first is gone", func() bool { return b.away("first") && !b.exists("serviceaccounts", "deploy-d-same") })
	b.want(second)
	b.later("the second has the names", func() bool { return b.running("second") && owner() == "D-Same" })
	require.Empty(b, b.problems())
}

// idsOfOneNameAtOnce has both come before anything of either is there.
func idsOfOneNameAtOnce(b *bench) {
	first, second := deployment("first"), deployment("second")
	first.DeploymentId, second.DeploymentId = "d_same", "D-Same"
	b.want(all()...)
	b.want(first, second)
	b.start()
	b.within(15*time.Minute, "one is reported", func() bool { return len(b.problems()) == 1 })
	require.NotEqual(b, b.running("first"), b.running("second"), "one runs")
	owner := b.object("serviceaccounts", "deploy-d-same").Label("unkey.com/deployment.id")
	if b.running("first") {
		require.Equal(b, "d_same", owner)
		b.gone(second)
	} else {
		require.Equal(b, "D-Same", owner)
		b.gone(first)
	}
	b.eventually("nothing is reported", func() bool { return len(b.problems()) == 0 })
}

// oneWorks waits until one of two agents is superseded.
func oneWorks(b, other *bench) (holder, rest *bench) {
	b.eventually("one is superseded", func() bool { return b.number("superseded")+other.number("superseded") == 1 })
	if b.metric("superseded") == "1" {
		return other, b
	}
	return b, other
}

// twoVersions have other settings, as an older and a newer version have: they do not undo what the other
// writes, because one works, and the other does once it is alone.
func twoVersions(b *bench) {
	b.want(all()...)
	other := b.worker()
	other.agent.Config.RuntimeClass = "kata"
	b.start()
	other.start()
	b.eventually("it runs", func() bool { return b.exists(replicaSets, "web") })
	holder, rest := oneWorks(b, other)
	b.pause(15 * time.Minute)
	runs := func(agent *bench) bool {
		return b.object(replicaSets, "web").Field("spec", "template", "spec", "runtimeClassName") == agent.agent.Config.RuntimeClass
	}
	require.True(b, runs(holder))
	require.Equal(b, "0 0", b.metric("contested_objects")+" "+other.metric("contested_objects"))
	b.net.Reset()
	other.net.Reset()
	b.pause(30 * time.Minute)
	require.Empty(b, append(b.net.Writes(), other.net.Writes()...))
	require.Empty(b, append(b.deletes(), other.deletes()...))
	holder.stop()
	b.eventually("it runs as the other wants it", func() bool { return runs(rest) })
}

// secondCell is C15: the agent of another cell is refused, and stays out of the
// way of the one that is served.
func secondCell(b *bench) {
	b.plant("orphan", "krane", ours("d_orphan"))
	b.want(all()...)
	b.agent.Config.Cluster.CellID = "a"
	other := b.worker()
	other.agent.Config.Cluster.CellID = "b"
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	other.start()
	b.eventually("the other raises the alarm", func() bool { return other.heldFor("region_claimed") == "1" })
	require.NotEqual(b, "1", b.heldFor("region_claimed"))
	require.Error(b, other.isReady())
	require.Contains(b, other.log.String(), "the control plane refuses the region")
	require.NotContains(b, other.log.String(), "no contact", "it answers")
	b.want(deployment("api"))
	b.gone(deployment("web"))
	b.eventually("the first works on", func() bool { return b.running("api") && b.away("web") })
	b.pause(5 * time.Minute)
	require.Empty(b, other.net.Writes())
	require.True(b, b.exists(replicaSets, "orphan"), "after one list")

	// When the first has stopped, the other takes over.
	b.stop()
	b.want(deployment("late"))
	b.within(10*time.Minute, "the other works", func() bool { return b.running("late") && other.heldFor("region_claimed") == "0" })
	require.Empty(b, other.deletes())
	require.NoError(b, other.isReady())
}

// regionLost is D10: the region is none for a while.
func regionLost(b *bench) {
	b.plant("orphan", "krane", ours("d_orphan"))
	b.want(all("api")...)
	lost := lostRegion()
	b.start()
	b.eventually("it runs", func() bool { return b.running("web", "api") })
	require.NotEqual(b, "1", b.heldFor("unknown_region"))
	lost.begin(b)
	b.within(10*time.Minute, "there is an alarm", func() bool { return b.heldFor("unknown_region") == "1" })
	b.pause(15 * time.Minute)
	require.Empty(b, b.deletes())
	require.True(b, b.exists(replicaSets, "orphan"), "there was one list only")
	lost.end(b)
	b.gone(deployment("api"))
	b.eventually("the alarm is over", func() bool { return b.heldFor("unknown_region") == "0" })
	b.eventually("a deletion is applied", func() bool { return b.away("api") })
	// The list after the outage is the second one, and the next sweep, within a minute, goes by it.
	b.later("the second list is enough", func() bool { return !b.exists(replicaSets, "orphan") })
}

// regionLostToCalls is D10 as heartbeats see it: the alarm is up while the streams are
// still open, and objects that are absent from two lists stay.
func regionLostToCalls(b *bench) {
	b.want(all()...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	b.synced(1)
	b.plant("orphan", "krane", ours("d_orphan"))
	var refused refuse
	for _, methods := range []string{"Get", "Report", "Heartbeat"} {
		refused = append(refused, controltest.Refusal{Methods: methods, Code: connect.CodeFailedPrecondition, Reason: "unknown-region"})
	}
	b.liar.Set(controltest.Faults{Refuse: refused})
	b.eventually("there is an alarm", func() bool { return b.heldFor("unknown_region") == "1" })
	opened := b.liar.Calls("WatchDeployments")
	b.pause(5 * time.Minute)
	require.Equal(b, opened, b.liar.Calls("WatchDeployments"))
	b.pause(lists)
	require.Empty(b, b.deletes())
	b.liar.Set(controltest.Faults{})
	b.eventually("the alarm is over", func() bool { return b.heldFor("unknown_region") == "0" })
	b.later("two lists are enough again", func() bool { return !b.exists(replicaSets, "orphan") })
}

// silentRegion is C25 and D23: after a silence in which the control plane gives up on the region,
// everything is reported again, without a change in the cluster.
func silentRegion(b *bench) {
	b.want(all()...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	inactive := func() bool {
		all := b.instances("web")
		return len(all) == 1 && all[0].Status == "inactive"
	}
	b.stop()
	b.pause(3 * time.Minute)
	require.True(b, inactive())
	first := b.liar.Reports()
	b.start()
	b.eventually("it is reported after the restart", func() bool { return b.running("web") })
	d := wrongToken()
	d.begin(b)
	b.pause(3 * time.Minute)
	require.True(b, inactive())
	reports := len(b.liar.Reports())
	d.end(b)
	b.eventually("it is reported again", func() bool { return b.running("web") && len(b.liar.Reports()) > reports })
	sequences := map[string]bool{}
	var epochs []uint64
	for _, m := range b.liar.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
			require.Equal(b, "web", r.GetUpdate().GetK8SName(), "a policy is not reported as a deployment")
			key := fmt.Sprintf("%d %d", r.GetAgentEpoch(), r.GetSequence())
			require.False(b, sequences[key], "a sequence number twice")
			sequences[key], epochs = true, append(epochs, r.GetAgentEpoch())
		}
	}
	require.True(b, slices.IsSorted(epochs), "the restarted agent is the newer one")
	require.Greater(b, epochs[len(epochs)-1], epochs[0])
	require.NotEmpty(b, first)
}
