package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// plant makes a ReplicaSet without pods, with labels of the agent or others, by a field manager.
func (r *region) plant(name, manager string, labels map[string]any) {
	set := object("apps/v1", "ReplicaSet", namespace, name)
	set.Set(labels, "metadata", "labels")
	orphan := map[string]any{"orphan": name}
	set["spec"] = map[string]any{
		"replicas": 0, "selector": map[string]any{"matchLabels": orphan},
		"template": map[string]any{
			"metadata": map[string]any{"labels": orphan},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
		},
	}
	r.do(func(w *simtest.World) {
		if w.Object("namespaces", "", namespace) == nil {
			require.NoError(r, w.As("person").Create(object("v1", "Namespace", "", namespace)))
		}
		require.NoError(r, w.As(manager).Create(set))
	})
}

// ours are the labels of what the agent has made for a deployment.
func ours(id string) map[string]any {
	return map[string]any{
		"app.kubernetes.io/managed-by": "krane", "unkey.com/region": regionName,
		"app.kubernetes.io/component": "deployment", "unkey.com/deployment.id": id,
	}
}

// reportedGone reports whether a deployment was reported as gone.
func (r *region) reportedGone(name string) bool {
	return slices.ContainsFunc(r.liar.Reports(), func(m proto.Message) bool {
		report, is := m.(*ctrlv1.ReportDeploymentStatusRequest)
		return is && report.GetDelete().GetK8SName() == name
	})
}

// unsendable has a row in a state that only a newer control plane knows: it is in no list, and what it wants stays.
func unsendable(b *bench) {
	b.want(all("api")...)
	b.start()
	b.eventually("it runs", func() bool { return b.running("web", "api") })
	state := func(name string) string {
		return "UPDATE deployment_topology SET desired_state = '" + name + "' WHERE deployment_id = 'd_api'"
	}
	b.byHand(state("weird"))
	b.stop()
	b.start()
	b.synced(3)
	b.within(30*time.Minute, "it is held", func() bool { return b.heldFor("doubt") == "1" })
	b.pause(time.Hour)
	require.True(b, b.running("web", "api"))
	require.Empty(b, b.deletes())
	require.Len(b, b.problems(), 1)
	require.Regexp(b, "^deployments in no list: 1 objects are in no list .*ReplicaSet.apps/"+namespace+"/api: .*cannot say", b.problems()[0])
	b.byHand(state("running"))
	b.within(30*time.Minute, "it is no problem any more", func() bool { return len(b.problems()) == 0 && b.heldFor("doubt") == "0" })
	require.True(b, b.running("api"))
}

// orphan is D9: one list is not enough.
func orphan(b *bench) {
	b.plant("orphan", "krane", ours("d_orphan"))
	b.plant("copied", "another", ours("d_copied"))
	b.plant("theirs", "krane", map[string]any{"app": "theirs"})
	elsewhere := ours("d_elsewhere")
	elsewhere["unkey.com/region"] = "other"
	b.plant("elsewhere", "krane", elsewhere)
	b.want(all()...)
	b.start()
	b.synced(1)
	b.eventually("it is held", func() bool { return b.heldFor("grace") == "2" })
	b.pause(5 * time.Minute)
	require.True(b, b.exists(replicaSets, "orphan"), "after one list")
	require.Empty(b, b.deletes())
	reports := b.liar.Calls("ReportDeploymentStatus")
	b.later("it goes after the second", func() bool { return !b.exists(replicaSets, "orphan") })
	for _, name := range []string{"copied", "theirs", "elsewhere", "web"} {
		require.True(b, b.exists(replicaSets, name), name)
	}
	b.eventually("that it is gone is reported, of which the control plane knows nothing", func() bool {
		return b.liar.Calls("ReportDeploymentStatus") == reports+1 && b.metric("unreported_deletions") == "0"
	})
	require.Len(b, b.deletes(), 1)
	b.pause(lists)
	require.Equal(b, 1, strings.Count(b.log.String(), "shop/copied"), "each list has it again")
}

func (r *region) plantOurs(n int, prefix string) {
	for i := range n {
		r.plant(fmt.Sprintf("%s-%d", prefix, i), "krane", ours(fmt.Sprintf("d_%s-%d", prefix, i)))
	}
}

func (r *region) deleteSets(names ...string) {
	for _, name := range names {
		r.person(func(c simtest.Client) error { return c.Delete(replicaSets, namespace, name) })
	}
}

// limit is C16: a limit within an hour, above which no object is deleted until a person
// approves exactly the held set. An agent that is restarted knows what the one before has
// deleted, and that it holds.
func limit(b *bench) {
	b.agent.Config.StateDir = b.t.TempDir()
	b.plantOurs(6, "orphan")
	b.want(all()...)
	b.start()
	b.later("they are held", func() bool { return b.heldFor("limit") == "6" })
	require.Empty(b, b.deletes())
	b.eventually("and reported", func() bool { _, count := b.held(); return count == 6 })
	of, _ := b.stored()
	require.Equal(b, "deployments/d_orphan-0", of.HeldDeletions.Units[0].Unit)
	require.Contains(b, of.HeldDeletions.Units[0].Reason, "the limit is 5")
	b.deleteSets("orphan-0", "orphan-1")
	b.later("four are held still", func() bool { _, count := b.held(); return count == 4 })
	b.plantOurs(1, "young")
	b.later("another one is in its grace", func() bool { return b.heldFor("grace") == "1" })
	require.Error(b, b.approve(of.HeldDeletions.Digest), "another set was approved")
	b.pause(2 * time.Minute)
	require.Empty(b, b.deletes())
	digest, _ := b.held()
	require.NoError(b, b.approve(digest))
	b.eventually("four may go", func() bool { return fmt.Sprint(b.names(replicaSets, "deployment")) == "[web young-0]" })
	b.eventually("nothing is held", func() bool { _, count := b.held(); return count == 0 })
	b.pause(30 * time.Second)
	require.True(b, b.exists(replicaSets, "young-0"), "an approval is no list")
	require.Len(b, b.deletes(), 4)
	b.deleteSets("young-0")
	b.plantOurs(4, "more")
	b.later("they are seen", func() bool { return b.heldFor("grace") == "4" })
	b.later("four more are within the limit, since what was approved does not count",
		func() bool { return fmt.Sprint(b.names(replicaSets, "deployment")) == "[web]" })
	b.plantOurs(2, "late")
	b.later("they are seen", func() bool { return b.heldFor("grace") == "2" })
	held := func() bool { return b.heldFor("limit") == "2" }
	b.later("one is left of the hour, and two are held", held)
	require.Len(b, b.deletes(), 8)
	b.start()
	b.later("two are held after a restart", held)
	require.Empty(b, b.deletes())

	// What cannot be read is no leave to delete.
	b.stop()
	file := filepath.Join(b.agent.Config.StateDir, "deletions-deployments.json")
	require.FileExists(b, file)
	require.NoError(b, os.WriteFile(file, []byte("["), 0o600))
	b.start()
	b.later("two are held for a broken file", held)
	require.Empty(b, b.deletes())
	b.stop()
	require.NoError(b, os.Remove(file))
	b.start()
	b.later("they go", func() bool { return len(b.deletes()) == 2 })
}

// heldAtOnce: what is held is reported at once, and the hold ends when it is wanted again or
// gone by another hand.
func heldAtOnce(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Hour
	b.plantOurs(6, "orphan")
	b.want(all()...)
	b.start()
	b.later("they are held", func() bool { return b.heldFor("limit") == "6" })
	b.within(10*time.Second, "and reported", func() bool { _, count := b.held(); return count == 6 })
	b.deleteSets("orphan-0", "orphan-1", "orphan-2", "orphan-3", "orphan-4", "orphan-5")
	b.later("nothing is held", func() bool { return b.heldFor("limit") == "0" })
	b.within(10*time.Second, "and that is reported", func() bool { _, count := b.held(); return count == 0 })
	b.plantOurs(1, "single")
	b.later("it is seen", func() bool { return b.heldFor("grace") == "1" })
	b.later("it goes: the hold was over", func() bool { return !b.exists(replicaSets, "single-0") })
}

// keptForAnEmptyList: what is kept since a list is empty is reported at once, until it is gone by another hand.
func keptForAnEmptyList(b *bench) {
	b.agent.Periods.Heartbeat = 100 * time.Hour
	b.plantOurs(2, "orphan")
	b.want(sentinel("guard"), policy("egress"))
	b.start()
	b.later("they are kept", func() bool { return b.heldFor("empty") == "2" })
	b.within(10*time.Second, "and reported", func() bool { return len(b.problems()) == 1 })
	require.Contains(b, b.problems()[0], "deployments: the list has none, and 2 objects are not deleted")
	b.deleteSets("orphan-0", "orphan-1")
	b.later("nothing is kept", func() bool { return b.heldFor("empty") == "0" })
	b.within(10*time.Second, "and that is reported", func() bool { return len(b.problems()) == 0 })
	require.Empty(b, b.deletes())
}

// lists is a time in which two lists come, and a minute is between them.
const lists = 25 * time.Minute

// noProof is S8: an answer that proves no absence deletes no object. The desired state
// vanishes from the answers, or an orphan is there which two lists would remove.
func noProof(d disturbance, planted bool) func(*bench) {
	return func(b *bench) {
		b.want(append(all("api"), sentinel("guard-2"), policy("egress-2"))...)
		b.start()
		there := func() bool {
			return b.exists(replicaSets, "web") && b.exists(workloads, "guard") && b.exists(ciliums, "egress")
		}
		b.eventually("it runs", func() bool { return there() && b.running("web") })
		// A new agent has no memory: it has the answers from here on.
		b.stop()
		d.begin(b)
		if planted { // where lists are right, they prove what they prove
			b.plant("orphan", "krane", ours("d_orphan"))
		}
		b.start()
		b.pause(lists)
		require.Empty(b, b.deletes())
		// One that was complete before loses its proof.
		b.stop()
		d.end(b)
		b.agent.Periods.Absence = 1000 * time.Hour // the proof is not to remove the orphan
		b.start()
		b.synced(1)
		d.begin(b)
		b.pause(lists)
		require.Empty(b, b.deletes())
		require.True(b, there())
		d.end(b)
	}
}

// noDeletionBeforeProof has an agent start on a control plane whose lists are never right, or do not
// come. It deletes neither what a point query calls deleted, nor what the stream does, until a list is proven.
func noDeletionBeforeProof(listed bool) func(*bench) {
	return func(b *bench) {
		b.want(all("api")...)
		b.start()
		b.eventually("it runs", func() bool { return b.running("web", "api") })
		b.stop()
		f := controltest.Faults{Refuse: refuse{no("Watch", connect.CodeInternal)}}
		if listed {
			var early controltest.Lie
			b.do(func(*simtest.World) { early = controltest.Early(b.epoch()) })
			f = controltest.Faults{Lie: early}
		}
		b.liar.Set(f)
		b.gone(deployment("api"))
		if !listed { // which point queries call deleted for a while
			b.gone(deployment("web"))
		}
		before, queries := b.liar.Lists("WatchDeployments"), b.liar.Calls("GetDesiredDeploymentState")
		b.start()
		if listed {
			b.eventually("lists come", func() bool { return b.liar.Lists("WatchDeployments") >= before+3 })
		}
		b.later("point queries are answered", func() bool { return b.liar.Calls("GetDesiredDeploymentState") >= queries+6 })
		b.pause(5 * time.Minute)
		require.Empty(b, b.deletes())
		require.False(b, b.reportedGone("api"))
		b.want(deployment("web"))
		b.liar.Set(controltest.Faults{})
		b.later("the one goes after the proof", func() bool { return b.away("api") && b.reportedGone("api") })
		b.eventually("the list has the other", func() bool { return b.running("web") })
		for _, deletion := range b.deletes() {
			require.Contains(b, deletion, "api")
		}
	}
}

// namespaceLives reports whether a namespace is there to stay.
func (r *region) namespaceLives(name string) (lives bool) {
	r.do(func(w *simtest.World) {
		o := w.Object("namespaces", "", name)
		lives = o != nil && !o.Deleting()
	})
	return lives
}

// emptyNamespace is C34.
func emptyNamespace(b *bench) {
	other := func(name, namespace string) *ctrlv1.ApplyDeployment {
		d := deployment(name)
		d.K8SNamespace = namespace
		return d
	}
	web, full := other("web", "a"), other("full", "b")
	b.want(web, full, deployment("stays"), sentinel("guard"), policy("egress"))
	b.start()
	b.eventually("both run", func() bool { return b.running("web", "full") })
	b.person(func(c simtest.Client) error {
		o := object("v1", "Service", "b", "theirs")
		o["spec"] = map[string]any{"ports": []any{map[string]any{"port": 80}}}
		return c.Create(o)
	})
	b.gone(web, full)
	b.eventually("they go", func() bool { return len(b.instances("web"))+len(b.instances("full")) == 0 })
	b.pause(8 * time.Minute)
	require.True(b, b.namespaceLives("a"), "for ten minutes")
	b.within(15*time.Minute, "the empty one goes", func() bool { return !b.namespaceLives("a") })
	b.pause(lists)
	require.True(b, b.namespaceLives(namespace))
	require.True(b, b.namespaceLives("b"))
}

// emptyWhileSuperseded has another agent work for a while: the ten minutes of an empty namespace begin again.
func emptyWhileSuperseded(b *bench) {
	web := deployment("web")
	web.K8SNamespace = "a"
	b.want(web, deployment("stays"), sentinel("guard"), policy("egress"))
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	b.gone(web)
	b.eventually("it goes", func() bool { return len(b.instances("web")) == 0 })
	b.pause(6 * time.Minute)
	other := b.worker()
	other.start()
	b.eventually("the other works", func() bool { return b.metric("superseded") == "1" })
	b.pause(2 * time.Minute)
	other.stop()
	b.eventually("it works again", func() bool { return b.metric("superseded") == "0" })
	b.pause(8 * time.Minute)
	require.True(b, b.namespaceLives("a"), "for ten minutes")
	b.within(15*time.Minute, "it goes", func() bool { return !b.namespaceLives("a") })
}

// given is a namespace that a person gives to the agent.
func given(name string) simtest.Object {
	o := object("v1", "Namespace", "", name)
	o.Set(map[string]any{
		"app.kubernetes.io/managed-by": "krane", "unkey.com/region": regionName, "app.kubernetes.io/component": "namespace",
	}, "metadata", "labels")
	return o
}

// namespaceOfOthers is a namespace that was there before: used, and not owned until a person gives it to
// the agent.
func namespaceOfOthers(b *bench) {
	b.person(func(c simtest.Client) error { return c.Create(object("v1", "Namespace", "", namespace)) })
	b.person(func(c simtest.Client) error { return c.Create(object("v1", "ServiceAccount", namespace, "default")) })
	theirs := b.object("serviceaccounts", "default")
	b.want(deployment("web"))
	b.start()
	b.eventually("it runs", func() bool { return b.running("web") })
	require.Equal(b, theirs, b.object("serviceaccounts", "default"), "the account of other pods is not touched")
	b.gone(deployment("web"))
	b.eventually("it goes", func() bool { return b.away("web") })
	b.pause(lists)
	require.True(b, b.namespaceLives(namespace))

	b.want(deployment("web"))
	b.eventually("it runs", func() bool { return b.running("web") })
	b.person(func(c simtest.Client) error {
		return c.Update("namespaces", "", namespace, func(o simtest.Object) {
			o.Set(given(namespace).Field("metadata", "labels"), "metadata", "labels")
		})
	})
	b.eventually("it is the agent's", func() bool {
		return b.object("serviceaccounts", "default").Field("automountServiceAccountToken") == false
	})
	b.do(func(w *simtest.World) {
		require.Equal(b, "restricted", w.Object("namespaces", "", namespace).Label("pod-security.kubernetes.io/enforce"))
	})
}
