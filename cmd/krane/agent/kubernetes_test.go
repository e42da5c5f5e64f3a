package agent_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// bootstrapResumeStop is D1, D2 and D3 in small.
func bootstrapResumeStop(b *rig) {
	var all []proto.Message
	for n := range 20 {
		all = append(all, b.deployment(fmt.Sprintf("web-%d", n)))
	}
	for n := range 3 {
		all = append(all, b.sentinel(fmt.Sprintf("guard-%d", n)), b.policy(fmt.Sprintf("egress-%d", n)))
	}
	b.want(all...)
	b.start()
	for n := range 20 {
		name := fmt.Sprintf("web-%d", n)
		await.Eventually(b.t, name+" is reported as running", func() bool { return b.running(name) })
	}
	b.synced(1)
	require.Equal(b.t, 20, b.count("replicasets", "-l", "app.kubernetes.io/component=deployment"))
	await.Eventually(b.t, "everything is applied", func() bool {
		return b.count("deployments") == 3 && b.count("ciliumnetworkpolicies") == 24 && b.count("services") == 3 &&
			b.count("horizontalpodautoscalers") == 20
	})
	await.Eventually(b.t, "sentinels are reported as healthy", func() bool {
		healthy := map[string]bool{}
		for n := range 3 {
			guard := b.stored(fmt.Sprintf("guard-%d", n))
			healthy[guard.Name] = guard.Health == "healthy" && guard.AvailableReplicas == 1
		}
		return !slices.Contains(slices.Collect(maps.Values(healthy)), false)
	})
	await.Eventually(b.t, "all of them have their owner", func() bool {
		return strings.Count(
			b.kubectl("get", "secrets,serviceaccounts,horizontalpodautoscalers,poddisruptionbudgets", "-n", b.name,
				"-l", "app.kubernetes.io/component=deployment", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].kind}"),
			"ReplicaSet",
		) == 80
	})
	// The label that a person takes away comes back: the policy of the manifests knows the fields of the agent.
	for _, kind := range []string{"replicaset", "horizontalpodautoscaler", "poddisruptionbudget"} {
		b.kubectl("label", kind, "web-3", "-n", b.name, "app.kubernetes.io/managed-by-")
	}
	for _, kind := range []string{"replicaset", "horizontalpodautoscaler", "poddisruptionbudget"} {
		await.Eventually(b.t, kind+" has its label again", func() bool {
			return b.kubectl("get", kind, "web-3", "-n", b.name, "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}`) == "krane"
		})
	}

	// What changes while there is no stream is what the next one brings.
	const method = "WatchDeployments"
	lists, sent := b.liar.Lists(method), b.liar.Sent(method)
	b.liar.Cut(0)
	changed := b.deployment("web-0")
	changed.Image = "registry.example.com/web-0:2"
	b.want(changed, b.deployment("web-20"))
	b.gone(b.deployment("web-1"), b.deployment("never-there"))
	b.put("stopped", b.deployment("web-2"))
	await.Eventually(b.t, "the new one runs", func() bool { return b.running("web-20") })
	for _, name := range []string{"web-1", "web-2"} {
		await.Eventually(b.t, name+" goes", func() bool { return b.away(name) })
	}
	await.Eventually(b.t, "the image is another", func() bool {
		return b.kubectl(
			"get",
			"replicaset",
			"web-0",
			"-n",
			b.name,
			"-o",
			"jsonpath={.spec.template.spec.containers[0].image}",
		) == changed.GetImage()
	})
	require.Equal(b.t, lists, b.liar.Lists(method))
	require.Equal(b.t, sent+5, b.liar.Sent(method), "those that changed, and no other")
	await.Eventually(
		b.t,
		"what belonged to it goes",
		func() bool { return !b.exists("secret", "deploy-d-web-1") && !b.exists("poddisruptionbudget", "web-1") },
	)

	for _, metric := range []string{
		"reconcile_operations_total", "resync_corrections_total", "watcher_full_syncs_total", "watcher_version_last_seen", "stream_connections_total",
		"stream_events_received_total", "dispatch_total", "full_sync_duration_seconds_count", "report_status_duration_seconds_count", "report_deduped_total",
		"pod_watch_reconnects_total", "parked_objects", "deletions_held", "stream_lag_versions", "unreported_deletions",
	} {
		require.NotEmpty(b.t, b.metric(metric), metric)
	}

	// Reports are in order, and state the version that they are about.
	last := uint64(0)
	for _, m := range b.liar.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
			require.NotZero(b.t, r.GetAgentEpoch())
			require.NotZero(b.t, r.GetSequence())
			last = max(last, r.GetObservedVersion())
		}
	}
	require.NotZero(b.t, last)
	require.NotZero(b.t, b.liar.Calls("Heartbeat"))
}

// isolatedFirst is D31: pods wait for the policies that isolate them, the policies of the
// deployment and of its namespace, and keep the level that the namespace enforces.
func isolatedFirst(b *rig) {
	var refused atomic.Pointer[string] // the policy
	name := func(name string) { refused.Store(&name) }
	egress := kube.Name(kube.SubdomainLimit, "krane", "egress", b.name)
	name(egress)
	b.want(b.deployment("web"), b.deployment("api"))
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Resource == "ciliumnetworkpolicies" && r.Writes() && r.Name == *refused.Load() {
			return applytest.Fault{Status: http.StatusInternalServerError}
		}
		return applytest.Fault{}
	})
	tried := func(policy string) {
		b.t.Helper()
		for range 2 { // whatever is applied after it has had its time
			b.net.Reset()
			await.Eventually(b.t, policy+" is tried", func() bool {
				return slices.ContainsFunc(b.net.Writes(), func(r applytest.Request) bool { return r.Name == policy })
			})
		}
	}
	tried(egress)
	require.Zero(b.t, b.count("replicasets"), "no pod runs before what isolates its namespace")
	name("web-frontline-ingress")
	await.Eventually(b.t, "the other one runs", func() bool { return b.running("api") })
	tried("web-frontline-ingress")
	require.False(b.t, b.exists("replicaset", "web"), "no pod runs before what isolates it")
	require.Empty(b.t, b.stored("web").Instances)
	name("")
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	// A policy of that name which is not ours isolates nothing.
	theirs := b.name + "-theirs"
	b.kubectl("create", "namespace", theirs)
	b.kubectl("label", "namespace", theirs, manifests.NamespaceLabel+"="+manifests.Account)
	foreign := fmt.Sprintf(
		"{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: %s, namespace: %s}, spec: {endpointSelector: {matchLabels: {a: b}}}}",
		egress,
		theirs,
	)
	require.NoError(b.t, b.cluster.Apply(b.t.Context(), foreign))
	late := b.deployment("late")
	late.K8SNamespace = theirs
	b.want(late)
	tried(egress)
	require.Empty(b.t, b.kubectl("get", "replicasets", "-n", theirs, "-o", "name"))
	b.kubectl("delete", "ciliumnetworkpolicy", egress, "-n", theirs)
	await.Eventually(b.t, "it runs once the name is free", func() bool { return b.running("late") })
	require.Equal(
		b.t,
		"restricted",
		b.kubectl("get", "namespace", b.name, "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`),
	)
	out, err := b.cluster.Kubectl(b.t.Context(), "run", "root", "-n", b.name, "--image=root")
	require.ErrorContains(b.t, err, "violates PodSecurity", out)
}

// vaultOutage is D29, and C33: what went wrong is logged, and no secret with it.
func vaultOutage(b *rig) {
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
	var log logtest.Log
	b.agent.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	broken, egress := b.policy("broken"), b.policy("egress")
	// No right control plane sends these.
	lies := map[string]string{
		"broken": `{"spec":"canary"`, "egress": `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":"canary"}`,
	}
	b.liar.Set(controltest.Faults{Lie: func(m ctrlv1.Message, _ int) ([]ctrlv1.Message, error) {
		order, _ := ctrlv1.Carried(m)
		if p, is := order.(*ctrlv1.ApplyCiliumNetworkPolicy); is && lies[p.GetK8SName()] != "" {
			p.Policy = []byte(lies[p.GetK8SName()])
		}
		return []ctrlv1.Message{m}, nil
	}})
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
	b.rests()
	b.stop()
	require.Contains(b.t, log.String(), "variables cannot be decrypted now")
	for _, secret := range []string{"hello", "aGVsbG8=", "canary", strings.TrimSpace(string(key))} {
		require.NotContains(b.t, log.String(), secret)
	}
}

// burst changes n policies in one transaction, as a person does past the API.
func (b *rig) burst(n, edition int) {
	b.t.Helper()
	require.NoError(b.t, b.store.Database.Write(b.t.Context(), func(tx *controlplanetest.Tx) error {
		changes := make([]statesync.Change, 0, n)
		for _, m := range rows(n, edition) {
			p := m.(*ctrlv1.ApplyCiliumNetworkPolicy) //nolint:forcetypeassert // it is one
			p.K8SNamespace = b.name
			spec, err := protojson.Marshal(p)
			if err != nil {
				return err
			}
			value, err := json.Marshal(map[string]any{"state": "running", "apply": json.RawMessage(spec)})
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(
				b.t.Context(),
				`INSERT INTO cilium_network_policies (id, region_id, k8s_name, k8s_namespace, policy, deleted, updated_at)
				VALUES (?, ?, ?, ?, ?, 0, 0) ON CONFLICT (id, region_id) DO UPDATE SET policy = excluded.policy`,
				p.GetCiliumNetworkPolicyId(), b.id(), p.GetK8SName(), p.GetK8SNamespace(), string(spec),
			); err != nil {
				return err
			}
			key := statesync.Key{Collection: ctrlv1.Policies, ID: p.GetCiliumNetworkPolicyId()}
			changes = append(changes, statesync.Change{Scope: b.name, Key: key, Value: value})
		}
		return b.store.Database.Log.Append(b.t.Context(), tx.Tx, changes...)
	}))
}

// BenchmarkBurst is D26: 10,000 rows that change in one transaction. It reports
// when the first write went out, and the greatest heap of agent and control plane
// together.
func BenchmarkBurst(b *testing.B) {
	const n = 10_000
	cluster, access := start(b)
	world := newRig(b, cluster, access, filepath.Join(b.TempDir(), "trueup.db"))
	world.start()
	world.synced(1)
	edition := 0
	for b.Loop() {
		edition++
		world.net.Reset()
		ended := make(chan struct{})
		var peak uint64
		var first time.Duration
		var watching sync.WaitGroup
		began := time.Now()
		watching.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			var memory runtime.MemStats
			for looks := 0; ; looks++ {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				if first == 0 && len(world.net.Writes()) > 0 {
					first = time.Since(began)
				}
				if looks%20 == 0 {
					runtime.ReadMemStats(&memory)
					peak = max(peak, memory.HeapAlloc)
				}
			}
		})
		world.burst(n, edition)
		await.Eventually(b, "the agent lags behind the log", func() bool { return world.lag() != "0 0 0" })
		deadline := time.Now().Add(10 * time.Minute)
		for world.lag() != "0 0 0" {
			require.True(b, time.Now().Before(deadline), "not in ten minutes")
			time.Sleep(50 * time.Millisecond)
		}
		close(ended)
		watching.Wait()
		b.ReportMetric(float64(first.Milliseconds()), "first-ms")
		b.ReportMetric(float64(peak>>20), "peak-MB")
		b.ReportMetric(n/time.Since(began).Seconds(), "rows/s")
	}
	require.Equal(b, n, world.count("ciliumnetworkpolicies", "-l", "app.kubernetes.io/component=policy"))
}
