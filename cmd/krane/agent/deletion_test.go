package agent_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// plant makes a ReplicaSet without pods, with the labels and the field manager of the
// agent, or of another manager.
func (b *bench) plant(name, labels, manager string) {
	b.t.Helper()
	if b.kubectl("get", "namespace", b.name, "--ignore-not-found", "-o", "name") == "" {
		b.kubectl("create", "namespace", b.name)
	}
	file := filepath.Join(b.t.TempDir(), name+".yaml")
	require.NoError(b.t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: %s, namespace: %s, labels: {%s}}
spec:
  replicas: 0
  selector: {matchLabels: {orphan: %s}}
  template:
    metadata: {labels: {orphan: %s}}
    spec: {containers: [{name: a, image: a}]}
`, name, b.name, labels, name, name), 0o600))
	b.kubectl("apply", "--server-side", "--field-manager="+manager, "-f", file)
}

func (b *bench) ours(id string) string {
	return fmt.Sprintf(
		"app.kubernetes.io/managed-by: krane, unkey.com/region: %s, app.kubernetes.io/component: deployment, unkey.com/deployment.id: %s",
		b.name,
		id,
	)
}

// relist makes the agent list everything again, and waits for it.
func (b *bench) relist(lists int) {
	b.t.Helper()
	// Another epoch: what a restored database shows.
	b.server.Renew(b.t)
	b.synced(lists)
}

// orphan is D9: one list is not enough.
func orphan(b *bench) {
	b.plant("orphan", b.ours("d_orphan"), "krane")
	b.plant("copied", b.ours("d_copied"), "another")
	b.plant("theirs", "app: theirs", "krane")
	b.plant("elsewhere", "app.kubernetes.io/managed-by: krane, unkey.com/region: other, app.kubernetes.io/component: deployment", "krane")
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	b.synced(1)
	await.Eventually(b.t, "it is held", func() bool { return b.metric(`deletions_held{reason="grace"}`) == "2" })
	b.beats()
	require.True(b.t, b.exists("replicaset", "orphan"), "after one list")
	require.Empty(b.t, b.deletes())
	b.relist(2)
	await.Eventually(b.t, "it goes after the second", func() bool { return !b.exists("replicaset", "orphan") })
	for _, name := range []string{"copied", "theirs", "elsewhere", "web"} {
		require.True(b.t, b.exists("replicaset", name), name)
	}
	await.Eventually(b.t, "that it is gone is reported", func() bool { return b.gone("orphan") })
	require.Len(b.t, b.deletes(), 1)
}

// limit is C16: a limit within an hour, above which no object is deleted until a person
// approves exactly the held set. An agent that is restarted knows what the one before has
// deleted, and that it holds.
func limit(b *bench) {
	b.agent.Config.StateDir = filepath.Join(b.t.TempDir(), "krane")
	for n := range 6 {
		b.plant(fmt.Sprintf("orphan-%d", n), b.ours(fmt.Sprintf("d_orphan-%d", n)), "krane")
	}
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	b.synced(1)
	b.relist(2)
	await.Eventually(b.t, "they are held", func() bool { return b.metric(`deletions_held{reason="limit"}`) == "6" })
	require.Empty(b.t, b.deletes())
	await.Eventually(b.t, "and reported", func() bool { return b.server.Held().GetCount() == 6 })
	six := b.server.Held()
	require.Equal(b.t, "deployments/d_orphan-0", six.GetUnits()[0].GetUnit())
	require.Contains(b.t, six.GetUnits()[0].GetReason(), "the limit is 5")
	b.kubectl("delete", "replicaset", "orphan-0", "orphan-1", "-n", b.name)
	b.relist(3)
	await.Eventually(b.t, "four are held still", func() bool { return b.server.Held().GetCount() == 4 })
	b.plant("young", b.ours("d_young"), "krane")
	b.relist(4)
	await.Eventually(b.t, "another one is in its grace", func() bool { return b.metric(`deletions_held{reason="grace"}`) == "1" })
	b.server.Approve(six.GetDigest())
	b.beats()
	require.Empty(b.t, b.deletes(), "another set was approved")
	b.server.Approve(b.server.Held().GetDigest())
	await.Eventually(b.t, "four may go", func() bool { return b.count("replicasets", "-l", "app.kubernetes.io/component=deployment") == 2 })
	await.Eventually(b.t, "nothing is held", func() bool { return b.server.Held() == nil })
	b.beats()
	require.True(b.t, b.exists("replicaset", "young"), "an approval is no list")
	b.kubectl("delete", "replicaset", "young", "-n", b.name)
	require.Len(b.t, b.deletes(), 4)
	for n := range 4 {
		b.plant(fmt.Sprintf("more-%d", n), b.ours(fmt.Sprintf("d_more-%d", n)), "krane")
	}
	b.relist(5)
	await.Eventually(b.t, "they are seen", func() bool { return b.metric(`deletions_held{reason="grace"}`) == "4" })
	b.relist(6)
	await.Eventually(b.t, "four more are within the limit, since what was approved does not count",
		func() bool { return b.count("replicasets", "-l", "app.kubernetes.io/component=deployment") == 1 })
	for n := range 2 {
		b.plant(fmt.Sprintf("late-%d", n), b.ours(fmt.Sprintf("d_late-%d", n)), "krane")
	}
	b.relist(7)
	await.Eventually(b.t, "they are seen", func() bool { return b.metric(`deletions_held{reason="grace"}`) == "2" })
	b.relist(8)
	held := func() bool { return b.metric(`deletions_held{reason="limit"}`) == "2" }
	await.Eventually(b.t, "one is left of the hour, and two are held", held)
	require.Len(b.t, b.deletes(), 8)
	b.start()
	b.synced(1)
	b.relist(2)
	await.Eventually(b.t, "two are held after a restart", held)
	require.Empty(b.t, b.deletes())

	// What cannot be read is no leave to delete.
	b.stop()
	file := filepath.Join(b.agent.Config.StateDir, "deletions-deployments.json")
	require.FileExists(b.t, file)
	require.NoError(b.t, os.WriteFile(file, []byte("["), 0o600))
	b.start()
	b.synced(1)
	b.relist(2)
	await.Eventually(b.t, "two are held for a broken file", held)
	require.Empty(b.t, b.deletes())
	b.stop()
	require.NoError(b.t, os.Remove(file))
	b.start()
	b.synced(1)
	b.relist(2)
	await.Eventually(b.t, "they go", func() bool { return len(b.deletes()) == 2 })
}

// heldAtOnce: what is held is reported at once, and the hold ends when it is wanted again or
// gone by another hand.
func heldAtOnce(b *bench) {
	b.agent.Periods.Heartbeat = time.Hour
	for n := range 6 {
		b.plant(fmt.Sprintf("orphan-%d", n), b.ours(fmt.Sprintf("d_orphan-%d", n)), "krane")
	}
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	b.synced(1)
	b.relist(2)
	await.Eventually(b.t, "they are held, and reported", func() bool { return b.server.Held().GetCount() == 6 })
	for n := range 6 {
		b.kubectl("delete", "replicaset", fmt.Sprintf("orphan-%d", n), "-n", b.name)
	}
	b.relist(3)
	await.Eventually(b.t, "nothing is held", func() bool { return b.server.Held() == nil })
	b.plant("single", b.ours("d_single"), "krane")
	b.relist(4)
	await.Eventually(b.t, "it is seen", func() bool { return b.metric(`deletions_held{reason="grace"}`) == "1" })
	b.relist(5)
	await.Eventually(b.t, "it goes: the hold was over", func() bool { return !b.exists("replicaset", "single") })
}

// noProof is S8: an answer that proves no absence deletes no object. The desired state
// vanishes from the answers, or an orphan is there which two lists would remove.
func noProof(faults controltest.Faults) func(*bench) {
	return func(b *bench) {
		b.agent.Periods.Relist = 300 * time.Millisecond
		if faults.NoMarkers {
			b.agent.Periods.Patience = 100 * time.Millisecond
		}
		web, guard, egress := b.deployment("web"), b.sentinel("guard"), b.policy("egress")
		web.Autoscaling = nil
		b.want(web, guard, egress, b.deployment("api"), b.sentinel("guard-2"), b.policy("egress-2"))
		b.start()
		await.Eventually(b.t, "it runs", func() bool {
			return b.running("web") && b.exists("deployment", "guard") && b.exists("ciliumnetworkpolicy", "egress")
		})
		// A new agent has no memory: it has the answers from here on.
		b.stop()
		b.server.Set(faults)
		// Where lists are right, they prove what they prove.
		if right := faults.NotFound && !faults.Internal && !faults.NoMarkers && faults.Broken == ""; !right {
			b.plant("orphan", b.ours("d_orphan"), "krane")
		}
		b.start()
		b.beats()
		require.Empty(b.t, b.deletes())
		// One that was complete before loses its proof.
		b.stop()
		b.server.Set(controltest.Faults{})
		b.agent.Periods.Absence = time.Hour // the proof is not to remove the orphan
		b.start()
		await.Eventually(b.t, "it was complete", func() bool {
			return b.metric(`watcher_full_syncs_total{resource_type="deployments"}`) != "" &&
				b.metric(`watcher_full_syncs_total{resource_type="policies"}`) != ""
		})
		b.server.Set(faults)
		b.beats()
		require.Empty(b.t, b.deletes())
		require.True(b.t, b.exists("replicaset", "web"))
		require.True(b.t, b.exists("deployment", "guard"))
		require.True(b.t, b.exists("ciliumnetworkpolicy", "egress"))
	}
}

// noDeletionBeforeProof returns a scenario in which an agent starts on a server whose
// lists are never right. It deletes neither what a point query calls deleted, nor what
// the stream does, until a list is proven.
func noDeletionBeforeProof(faults controltest.Faults) func(*bench) {
	return func(b *bench) {
		b.want(b.deployment("web"), b.deployment("api"), b.sentinel("guard"), b.policy("egress"))
		b.start()
		await.Eventually(b.t, "it runs", func() bool { return b.running("web") && b.running("api") })
		b.stop()
		b.server.Set(faults)
		b.want(b.stopped("api"))
		before := b.server.Counts()
		b.start()
		if faults.Lie {
			await.Eventually(b.t, "lists come", func() bool { return b.server.Counts().Lists["deployments"] >= before.Lists["deployments"]+3 })
		}
		await.Eventually(b.t, "point queries are answered", func() bool { return b.server.Counts().Queries >= before.Queries+6 })
		b.beats()
		require.Empty(b.t, b.deletes())
		require.False(b.t, b.gone("api"))
		b.server.Set(controltest.Faults{})
		await.Eventually(b.t, "the one goes after the proof", func() bool { return !b.exists("replicaset", "api") && b.gone("api") })
		await.Eventually(b.t, "the list has the other", func() bool { return b.running("web") })
		for _, deletion := range b.deletes() {
			require.Contains(b.t, deletion, "api")
		}
	}
}

// emptyNamespace is C34.
func emptyNamespace(b *bench) {
	b.agent.Periods.Namespace = 500 * time.Millisecond
	web := b.deployment("web")
	web.K8SNamespace = b.name + "-a"
	full := b.deployment("full")
	full.K8SNamespace = b.name + "-b"
	b.want(web, full, b.deployment("stays"), b.sentinel("guard"), b.policy("egress"))
	b.start()
	await.Eventually(b.t, "both run", func() bool { return b.running("web") && b.running("full") })
	b.kubectl("create", "configmap", "theirs", "-n", b.name+"-b")
	for _, d := range []string{"web", "full"} {
		stopped := b.stopped(d)
		stopped.K8SNamespace = b.name + map[string]string{"web": "-a", "full": "-b"}[d]
		b.want(stopped)
	}
	await.Eventually(b.t, "the empty one goes", func() bool {
		return b.kubectl("get", "namespace", b.name+"-a", "--ignore-not-found", "-o", "name") == ""
	})
	b.beats()
	for _, namespace := range []string{b.name, b.name + "-b"} {
		require.Equal(b.t, "Active", b.kubectl("get", "namespace", namespace, "-o", "jsonpath={.status.phase}"))
	}
}

// namespaceOfOthers is a namespace that was there before: used, and never owned.
func namespaceOfOthers(b *bench) {
	b.agent.Periods.Namespace = 300 * time.Millisecond
	b.kubectl("create", "namespace", b.name)
	account := func() string {
		return b.kubectl(
			"get",
			"serviceaccount",
			"default",
			"-n",
			b.name,
			"--ignore-not-found",
			"-o",
			"jsonpath={.metadata.name} {.metadata.resourceVersion}",
		)
	}
	await.Eventually(b.t, "the namespace has its account", func() bool { return account() != "" })
	theirs := account()
	b.want(b.deployment("web"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	require.Equal(b.t, theirs, account(), "the account of other pods is not touched")
	b.want(b.stopped("web"))
	await.Eventually(b.t, "it goes", func() bool { return !b.exists("replicaset", "web") })
	b.beats()
	require.Equal(b.t, "Active", b.kubectl("get", "namespace", b.name, "-o", "jsonpath={.status.phase}"))
}

// dies runs one agent after another that is killed right after its first request
// of this kind, until one has none to make. It returns how many were killed.
func (b *bench) dies(operation string, is func(applytest.Request) bool) (times int) {
	b.t.Helper()
	done := func() bool {
		return b.metric(fmt.Sprintf(`reconcile_operations_total{operation=%q,resource_type="deployments",result="success"}`, operation)) != ""
	}
	for ; ; times++ {
		require.Less(b.t, times, 50)
		var begun atomic.Bool
		b.startWith(func(r applytest.Request) applytest.Fault {
			switch {
			case !is(r):
				return applytest.Fault{}
			case begun.CompareAndSwap(false, true):
				return applytest.Fault{Crash: true, LoseAnswer: true}
			default: // one that was on its way as well
				return applytest.Fault{Lose: true}
			}
		})
		await.Eventually(b.t, "it dies, or is done", func() bool { return b.net.Crashed() || done() })
		if !b.net.Crashed() {
			return times
		}
		b.stop()
	}
}

// killed is D13: dead after any write, the next process goes on.
func killed(b *bench) {
	const kinds = "secrets,serviceaccounts,replicasets,horizontalpodautoscalers,ciliumnetworkpolicies,poddisruptionbudgets"
	b.want(b.deployment("web"))
	// Kubernetes makes the default account as well, and the agent writes it again if
	// it comes second.
	times := b.dies("apply", func(r applytest.Request) bool { return r.Writes() && r.Name != "default" })
	require.GreaterOrEqual(b.t, times, 8, "a namespace, six objects, and owners for those before the ReplicaSet")
	await.Eventually(b.t, "it runs in the end", func() bool { return b.running("web") })
	require.Equal(b.t, 6, b.count(kinds, "-l", "app.kubernetes.io/component=deployment"), "with all that belongs to it")
	require.Empty(b.t, b.deletes())
	b.stop()
	b.want(b.stopped("web"))
	// The same on the way back.
	require.NotZero(b.t, b.dies("delete", func(r applytest.Request) bool { return r.Verb == "delete" }))
	await.Eventually(b.t, "no object is left", func() bool { return b.count(kinds, "-l", "app.kubernetes.io/component=deployment") == 0 })
	await.Eventually(b.t, "and that is reported", func() bool { return b.server.Instances()["web"] == nil })
}

// vaultOutage is D29, and C33: what went wrong is logged, and no secret with it.
func vaultOutage(b *bench) {
	file := filepath.Join(b.t.TempDir(), "keys")
	key := []byte(vault.NewKey())
	require.NoError(b.t, os.WriteFile(file, key, 0o600))
	keys := &vault.KeyFile{Path: file}
	encrypted, err := keys.Encrypt("env_1", []byte(`{"GREETING":"hello"}`))
	require.NoError(b.t, err)
	b.agent.Vault = keys
	b.agent.Periods.Retry.Retries = 1
	web := b.deployment("web")
	web.EncryptedEnvironmentVariables = encrypted
	var log bytes.Buffer
	b.agent.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	broken, egress := b.policy("broken"), b.policy("egress")
	broken.Policy, egress.Policy = []byte(
		`{"spec":"canary"`,
	), []byte(
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":"canary"}`,
	)
	b.want(web, broken, egress)
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	greeting := func(name string) string {
		return b.kubectl("get", "secret", "deploy-d-"+name, "-n", b.name, "--ignore-not-found", "-o", "jsonpath={.data.GREETING}")
	}
	require.Equal(b.t, "aGVsbG8=", greeting("web"))
	b.stop()
	require.NoError(b.t, os.Remove(file))
	api := b.deployment("api")
	api.EncryptedEnvironmentVariables = encrypted
	b.want(api, b.deployment("plain"))
	b.start()
	await.Eventually(b.t, "one without variables converges", func() bool { return b.running("plain") })
	await.Eventually(b.t, "the others are parked", func() bool { return b.metric(`parked_objects{resource_type="deployments"}`) == "2" })
	require.True(b.t, b.running("web"))
	require.Equal(b.t, "aGVsbG8=", greeting("web"), "not emptied")
	require.False(b.t, b.exists("replicaset", "api"))
	require.Empty(b.t, b.deletes())
	require.NoError(b.t, os.WriteFile(file, key, 0o600))
	await.Eventually(b.t, "it converges when the vault is back", func() bool { return b.running("api") && greeting("api") == "aGVsbG8=" })
	require.Empty(b.t, b.deletes())
	await.Eventually(b.t, "broken policies are parked", func() bool { return b.metric(`parked_objects{resource_type="policies"}`) == "2" })
	b.stop()
	require.Contains(b.t, log.String(), "variables cannot be decrypted now")
	for _, secret := range []string{"hello", "aGVsbG8=", "canary", strings.TrimSpace(string(key))} {
		require.NotContains(b.t, log.String(), secret)
	}
}
