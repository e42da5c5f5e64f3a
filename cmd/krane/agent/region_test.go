package agent_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func (b *bench) imageOf(name string) string {
	b.t.Helper()
	return b.kubectl("get", "replicaset", name, "-n", b.name, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// setImage has another manager change the image of a deployment.
func (b *bench) setImage(name, image string) {
	b.t.Helper()
	b.kubectl("patch", "replicaset", name, "-n", b.name, "--field-manager=rival", "--type=json",
		"-p", fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image))
}

// countsWhatIsFoughtOver: an edit is put right at once, from the sixth time on it is a fight,
// which is counted and left alone for a while. The others are not held back.
func countsWhatIsFoughtOver(b *bench) {
	web := b.deployment("web")
	b.want(web)
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	for range 5 {
		b.setImage("web", "rival")
		await.Eventually(b.t, "the image is back", func() bool { return b.imageOf("web") == web.GetImage() })
	}
	require.Equal(b.t, "0", b.metric("contested_objects"))
	b.setImage("web", "rival")
	await.Eventually(b.t, "the fight is counted", func() bool { return b.metric("contested_objects") == "1" })
	require.Equal(b.t, "rival", b.imageOf("web"), "it is left alone")
	b.want(web, b.deployment("api"))
	await.Eventually(b.t, "another one is made", func() bool { return b.running("api") })
	await.Eventually(b.t, "the image is back once more", func() bool { return b.imageOf("web") == web.GetImage() })
	require.Equal(b.t, "1", b.metric("contested_objects"), "it is not over")
}

// quiet waits until the agents neither write nor report for some heartbeats.
func quiet(agents ...*bench) {
	b := agents[0]
	b.t.Helper()
	await.Eventually(b.t, "no agent writes or reports", func() bool {
		for _, a := range agents {
			a.net.Reset()
		}
		reports := len(b.server.Reports())
		b.beats()
		writes := 0
		for _, a := range agents {
			writes += len(a.net.Writes())
		}
		return writes == 0 && len(b.server.Reports()) == reports
	})
}

// twoAgents is D24: two agents of one region, as while one replaces the other.
func twoAgents(b *bench) {
	b.want(b.deployment("web"), b.deployment("api"), b.sentinel("guard"), b.policy("egress"))
	other := b.twin()
	b.start()
	other.start()
	await.Eventually(b.t, "all of it runs", func() bool {
		return b.running("web") && b.running("api") && b.exists("deployment", "guard") && b.exists("ciliumnetworkpolicy", "egress")
	})
	b.synced(1)
	other.synced(1)
	require.Empty(b.t, append(b.deletes(), other.deletes()...))
	quiet(b, other)
	require.Empty(b.t, append(b.deletes(), other.deletes()...))

	// Both receive the same, and apply it at the same time.
	web := b.deployment("web")
	web.Image = "registry.example.com/web:2"
	b.want(web, b.stopped("api"), b.deployment("late"))
	await.Eventually(b.t, "both are done", func() bool { return b.lag() == "0 0 0" && other.lag() == "0 0 0" })
	await.Eventually(b.t, "the cluster matches", func() bool {
		return b.imageOf("web") == web.GetImage() && b.running("late") && !b.exists("replicaset", "api") && b.server.Instances()["api"] == nil
	})
	for _, deletion := range append(b.deletes(), other.deletes()...) {
		require.Contains(b.t, deletion, "api")
	}
	b.setImage("web", "wrong")
	await.Eventually(b.t, "the image is back", func() bool { return b.imageOf("web") == web.GetImage() })
	quiet(b, other)
	require.True(b.t, b.running("web"))

	other.stop()
	b.want(b.stopped("late"))
	await.Eventually(
		b.t,
		"the one that stays goes on",
		func() bool { return !b.exists("replicaset", "late") && b.server.Instances()["late"] == nil },
	)
}

// secondCell is C15: the agent of another cell is refused, and stays out of the
// way of the one that is served.
func secondCell(b *bench) {
	b.server.Set(controltest.Faults{Cell: "a"})
	b.plant("orphan", b.ours("d_orphan"), "krane")
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.agent.Config.Cluster.CellID = "a"
	other := b.twin()
	other.agent.Config.Cluster.CellID = "b"
	other.start()
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	await.Eventually(b.t, "the other raises the alarm", func() bool { return other.metric(`deletions_held{reason="region_claimed"}`) == "1" })
	require.Equal(b.t, "0", b.metric(`deletions_held{reason="region_claimed"}`))
	require.False(b.t, other.ready())
	b.want(b.stopped("web"), b.deployment("api"))
	await.Eventually(b.t, "the first works on", func() bool { return !b.exists("replicaset", "web") && b.running("api") })
	b.beats()
	require.Empty(b.t, other.net.Writes())

	// When the first has stopped, the other takes over.
	b.stop()
	b.server.Set(controltest.Faults{Cell: "b"})
	b.want(b.deployment("late"))
	await.Eventually(b.t, "the other works", func() bool {
		return b.running("late") && other.metric(`deletions_held{reason="region_claimed"}`) == "0"
	})
	require.Empty(b.t, other.deletes())
}

// regionLost is D10: the region is none for a while.
func regionLost(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	b.plant("orphan", b.ours("d_orphan"), "krane")
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	b.synced(1)
	require.Equal(b.t, "0", b.metric(`deletions_held{reason="unknown_region"}`))
	b.server.Set(controltest.Faults{UnknownRegion: true})
	await.Eventually(b.t, "there is an alarm", func() bool { return b.metric(`deletions_held{reason="unknown_region"}`) == "1" })
	b.want(b.stopped("web"))
	b.beats()
	require.Empty(b.t, b.deletes())
	b.server.Set(controltest.Faults{})
	await.Eventually(b.t, "the alarm is over", func() bool { return b.metric(`deletions_held{reason="unknown_region"}`) == "0" })
	await.Eventually(
		b.t,
		"the deletion is applied",
		func() bool { return !b.exists("replicaset", "web") && b.server.Instances()["web"] == nil },
	)
	require.True(b.t, b.exists("replicaset", "orphan"), "there was one list only")
}

// regionLostToCalls is D10 as heartbeats see it: the alarm is up while the streams are
// still open, and objects that are absent from two lists stay.
func regionLostToCalls(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	b.plant("orphan", b.ours("d_orphan"), "krane")
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	b.synced(1)
	streams := b.server.Counts().Streams
	b.server.SetCalls(controltest.Faults{UnknownRegion: true})
	await.Eventually(b.t, "there is an alarm", func() bool { return b.metric(`deletions_held{reason="unknown_region"}`) == "1" })
	require.Equal(b.t, streams, b.server.Counts().Streams)
	require.Empty(b.t, b.deletes())
	b.server.SetCalls(controltest.Faults{})
	await.Eventually(b.t, "the alarm is over", func() bool { return b.metric(`deletions_held{reason="unknown_region"}`) == "0" })
	require.Equal(b.t, streams, b.server.Counts().Streams)
	b.relist(2)
	await.Eventually(b.t, "two lists are enough again", func() bool { return !b.exists("replicaset", "orphan") })
}

// reports counts the reports of the instances of the deployment web.
func (b *bench) reports() int {
	n := 0
	for _, m := range b.server.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok && r.GetUpdate().GetK8SName() == "web" {
			n++
		}
	}
	return n
}

// silentRegion is the agent's part of C25 and D23: after a silence in which the
// control plane may have given up on the region, everything is reported again,
// without a change in the cluster.
func silentRegion(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	quiet(b)
	reports := b.reports()
	b.server.Set(controltest.Faults{Token: "other"})
	b.beats() // ten that are refused, over more than three intervals
	require.Equal(b.t, reports, b.reports())
	b.server.Set(controltest.Faults{})
	await.Eventually(b.t, "it is reported again", func() bool { return b.reports() > reports })
	quiet(b)
	reports = b.reports()
	b.start()
	await.Eventually(b.t, "and after a restart", func() bool { return b.reports() > reports })
	require.True(b.t, b.running("web"))
	sequences := map[string]bool{}
	last := uint64(0)
	for _, m := range b.server.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
			key := fmt.Sprintf("%d %d", r.GetAgentEpoch(), r.GetSequence())
			require.False(b.t, sequences[key], "a sequence number twice")
			sequences[key], last = true, max(last, r.GetAgentEpoch())
		}
	}
	first, ok := b.server.Reports()[0].(interface{ GetAgentEpoch() uint64 })
	require.True(b.t, ok)
	require.Greater(b.t, last, first.GetAgentEpoch(), "the restarted agent is the newer one")
}

// restored is D11: the database is an older one. What is newer than it is held by
// the limit, or goes after two lists, and what runs is reported to the database as
// it is now.
func restored(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	all := []proto.Message{b.deployment("web"), b.sentinel("guard"), b.policy("egress")}
	b.agent.Periods.Relist = 500 * time.Millisecond
	newer := []proto.Message{b.deployment("new-0"), b.deployment("new-1")}
	b.want(append(all, newer...)...)
	b.start()
	await.Eventually(b.t, "all of it runs", func() bool { return b.running("web") && b.running("new-0") && b.running("new-1") })
	quiet(b)
	reports := b.reports()
	b.server.Forget(b.t, newer[0])
	b.server.Forget(b.t, newer[1])
	await.Eventually(b.t, "it is reported to the older database", func() bool { return b.reports() > reports })
	await.Eventually(b.t, "what it does not know goes after two lists", func() bool {
		return !b.exists("replicaset", "new-0") && !b.exists("replicaset", "new-1")
	})
	require.True(b.t, b.running("web"))
	for _, deletion := range b.deletes() {
		require.Contains(b.t, deletion, "new-")
	}
}
