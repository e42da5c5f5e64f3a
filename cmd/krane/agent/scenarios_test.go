package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func scenarios() map[string]func(*bench) {
	return map[string]func(*bench){
		"bootstrap resume and stop":      bootstrapResumeStop,
		"no write at rest":               atRest,
		"lost delete report":             lostDeleteReport,
		"a human edit":                   humanEdit,
		"a policy is removed":            policyRemoved,
		"one refused object":             oneRefused,
		"isolation first":                isolatedFirst,
		"order":                          order,
		"a token is replaced":            tokenReplaced,
		"an orphan":                      orphan,
		"more orphans than the limit":    limit,
		"what is held is reported":       heldAtOnce,
		"an empty namespace":             emptyNamespace,
		"a namespace of others":          namespaceOfOthers,
		"killed between two steps":       killed,
		"vault outage":                   vaultOutage,
		"kubernetes outage":              kubernetesOutage,
		"control plane outage":           controlOutage,
		"two agents":                     twoAgents,
		"a fight is counted":             countsWhatIsFoughtOver,
		"a second cell":                  secondCell,
		"a lost region":                  regionLost,
		"a silent region":                silentRegion,
		"a restored database":            restored,
		"a lost watch of pods":           podWatchLost,
		"queries beside a closed stream": queriesBesideAClosedStream,
		"breakers":                       breakers,
		"point queries fail":             queriesFail,
		"a burst":                        burst,
		"a token file is replaced":       tokenFileReplaced,
		"streams are revoked":            streamsRevoked,
		"a region lost to calls":         regionLostToCalls,
		"no deletion by wrong lists":     noDeletionBeforeProof(controltest.Faults{Early: true, Lie: true}),
		"no deletion by point queries":   noDeletionBeforeProof(controltest.Faults{Internal: true, Gone: true}),
		"one line for a dead server":     oneLine(controltest.Faults{Down: true}),
		"one line for a wrong token":     oneLine(controltest.Faults{Token: "other"}),
		"one line for a dead database":   oneLine(controltest.Faults{Internal: true, Query: connect.CodeUnavailable}),
		"one line for a lost region":     oneLine(controltest.Faults{UnknownRegion: true}),
		"every right is used":            everyRight,
		"an unlisted kind":               unlistedKind,
		"a crash loop":                   crashLoop,
		"no proof cut list":              noProof(controltest.Faults{CutAfter: 1}),
		"no proof wrong count":           noProof(controltest.Faults{Lie: true}),
		"no proof wrong digest":          noProof(controltest.Faults{WrongDigest: true}),
		"no proof unknown region":        noProof(controltest.Faults{UnknownRegion: true}),
		"no proof wrong credential":      noProof(controltest.Faults{Token: "other"}),
		"no proof empty list":            noProof(controltest.Faults{Hide: true}),
		"no proof database error":        noProof(controltest.Faults{Internal: true, NotFound: true}),
		"no proof one broken stream":     noProof(controltest.Faults{Broken: "policies", NotFound: true}),
		"no proof not found":             noProof(controltest.Faults{NotFound: true}),
		"no proof without any markers":   noProof(controltest.Faults{NoMarkers: true, NotFound: true}),
	}
}

// bootstrapResumeStop is D1, D2 and D3 in small.
func bootstrapResumeStop(b *bench) {
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
		for _, m := range b.server.Reports() {
			if r, ok := m.(*ctrlv1.ReportSentinelStatusRequest); ok && r.GetHealth() == ctrlv1.Health_HEALTH_HEALTHY &&
				r.GetAvailableReplicas() == 1 {
				healthy[r.GetK8SName()] = true
			}
		}
		return len(healthy) == 3
	})
	await.Eventually(b.t, "all of them have their owner", func() bool {
		return strings.Count(
			b.kubectl("get", "secrets,serviceaccounts,horizontalpodautoscalers,poddisruptionbudgets,ciliumnetworkpolicies", "-n", b.name,
				"-l", "app.kubernetes.io/component=deployment", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].kind}"),
			"ReplicaSet",
		) == 100
	})

	// What changes while there is no stream is what the next one brings.
	before := b.server.Counts()
	b.server.Cut()
	changed := b.deployment("web-0")
	changed.Image = "registry.example.com/web-0:2"
	b.want(changed, b.deployment("web-20"), b.stopped("web-1"), b.stopped("web-2"), b.stopped("never-there"))
	await.Eventually(b.t, "the new one runs", func() bool { return b.running("web-20") })
	for _, name := range []string{"web-1", "web-2"} {
		await.Eventually(b.t, name+" goes", func() bool { return !b.exists("replicaset", name) && b.server.Instances()[name] == nil })
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
	after := b.server.Counts()
	require.Equal(b.t, before.Lists["deployments"], after.Lists["deployments"])
	require.Equal(b.t, before.Sent["deployments"]+5, after.Sent["deployments"], "those that changed, and no other")
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
	for _, m := range b.server.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
			require.NotZero(b.t, r.GetAgentEpoch())
			require.NotZero(b.t, r.GetSequence())
			last = max(last, r.GetObservedVersion())
		}
	}
	require.NotZero(b.t, last)
	require.NotZero(b.t, after.Heartbeats)
}

// atRest is C30: what has converged costs neither writes nor reports, also after
// a restart.
func atRest(b *bench) {
	// After a silence of three heartbeats everything is reported again.
	b.agent.Periods.Heartbeat = time.Second
	b.want(b.deployment("web"), b.sentinel("guard"), b.policy("egress"))
	quiet := func() {
		b.t.Helper()
		await.Eventually(b.t, "everything runs and is reported", func() bool {
			return b.running("web") && b.metric("parked_objects{resource_type=\"policies\"}") == "0" && b.exists("ciliumnetworkpolicy", "egress")
		})
		for still := false; !still; {
			b.net.Reset()
			reports := len(b.server.Reports())
			b.beats() // some seconds of heartbeats and point queries
			still = len(b.net.Writes()) == 0 && len(b.server.Reports()) == reports
		}
		b.net.Reset()
		reports := len(b.server.Reports())
		b.beats()
		b.net.NoWrites(b.t)
		require.Len(b.t, b.server.Reports(), reports)
		require.Equal(b.t, "0", b.metric("unreported_deletions"))
		for _, m := range b.server.Reports() {
			if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok {
				require.Equal(b.t, "web", r.GetUpdate().GetK8SName(), "a policy is not reported as a deployment")
			}
		}
	}
	b.start()
	quiet()
	b.start()
	b.synced(1)
	quiet()
	for _, write := range b.net.Writes() {
		b.t.Error("after a restart", write)
	}
}

// lostDeleteReport is D21 and C23.
func lostDeleteReport(b *bench) {
	b.want(b.deployment("web"), b.deployment("api"))
	b.start()
	await.Eventually(b.t, "both run", func() bool { return b.running("web") && b.running("api") })
	b.server.Set(controltest.Faults{Report: func(m proto.Message) error {
		// Its pod may be deleted first, which is a report without instances.
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok && (r.GetDelete() != nil || r.GetUpdate().GetK8SName() == "web") {
			return errors.New("lost")
		}
		return nil
	}})
	b.want(b.stopped("web"))
	await.Eventually(b.t, "it is gone", func() bool { return !b.exists("replicaset", "web") })
	await.Eventually(b.t, "the report is owed", func() bool { return b.metric("unreported_deletions") == "1" })
	require.Len(b.t, b.server.Instances()["web"], 1)
	b.stop()
	b.server.Set(controltest.Faults{})
	b.start()
	await.Eventually(
		b.t,
		"it is reported after the restart",
		func() bool { return b.server.Instances()["web"] == nil && b.metric("unreported_deletions") == "0" },
	)
	require.True(b.t, b.running("api"))
}

// humanEdit is D25: an owned field is taken back, a foreign one stays.
func humanEdit(b *bench) {
	b.want(b.deployment("web"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	b.kubectl("annotate", "replicaset", "web", "-n", b.name, "example.com/note=theirs")
	b.setImage("web", "wrong")
	await.Eventually(b.t, "the image is back", func() bool { return b.imageOf("web") == "registry.example.com/web:1" })
	require.Equal(
		b.t,
		"theirs",
		b.kubectl("get", "replicaset", "web", "-n", b.name, "-o", `jsonpath={.metadata.annotations.example\.com/note}`),
	)
	b.kubectl("delete", "secret", "deploy-d-web", "-n", b.name)
	await.Eventually(b.t, "what is deleted comes back", func() bool { return b.exists("secret", "deploy-d-web") })
}

// policyRemoved is D30.
func policyRemoved(b *bench) {
	flagged, lost, stays := b.policy("flagged"), b.policy("lost"), b.policy("stays")
	b.agent.Periods.Relist = 500 * time.Millisecond
	b.want(flagged, lost, stays)
	b.start()
	await.Eventually(b.t, "all are there", func() bool {
		return b.count("ciliumnetworkpolicies", "-l", "app.kubernetes.io/component!=namespace") == 3
	})
	b.want(b.gonePolicy("flagged"))
	await.Eventually(b.t, "the flagged one goes", func() bool { return !b.exists("ciliumnetworkpolicy", "flagged") })
	b.server.Forget(b.t, lost)
	await.Eventually(b.t, "the lost one goes", func() bool { return !b.exists("ciliumnetworkpolicy", "lost") })
	require.True(b.t, b.exists("ciliumnetworkpolicy", "stays"))
}

// oneRefused is D16: one among many that is always refused.
func oneRefused(b *bench) {
	b.agent.Periods.Retry.Retries = 2
	broken := b.deployment("broken")
	broken.CpuMillicores = 0
	all := []proto.Message{broken}
	for n := range 8 {
		d := b.deployment(fmt.Sprintf("web-%d", n))
		d.Autoscaling = &ctrlv1.Autoscaling{MinReplicas: 1, MaxReplicas: 2}
		all = append(all, d)
	}
	taken := b.deployment("taken") // the name belongs to another manager
	all = append(all, taken)
	b.kubectl("create", "namespace", b.name)
	b.kubectl("create", "serviceaccount", "deploy-d-taken", "-n", b.name)
	b.want(all...)
	b.start()
	for n := range 8 {
		name := fmt.Sprintf("web-%d", n)
		await.Eventually(b.t, name+" runs", func() bool { return b.running(name) })
	}
	await.Eventually(b.t, "two are parked", func() bool { return b.metric(`parked_objects{resource_type="deployments"}`) == "2" })
	require.False(b.t, b.exists("replicaset", "broken"))
	b.want(b.deployment("broken"))
	await.Eventually(b.t, "it runs when it is right", func() bool { return b.running("broken") })
}

// isolatedFirst is D31: pods wait for the policies that isolate them, the policies of the
// deployment and of its namespace, and keep the level that the namespace enforces.
func isolatedFirst(b *bench) {
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
	require.Empty(b.t, b.server.Instances()["web"])
	name("")
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	// A policy of that name which is not ours isolates nothing.
	theirs := b.name + "-theirs"
	b.kubectl("create", "namespace", theirs)
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

// order is D14: a delete that comes while the apply before it is under way.
func order(b *bench) {
	b.want(b.deployment("web"), b.deployment("api"))
	b.start()
	await.Eventually(b.t, "both run", func() bool { return b.running("web") && b.running("api") })
	b.stop()
	var slow atomic.Bool
	seen := make(chan struct{}, 1)
	b.startWith(func(r applytest.Request) applytest.Fault {
		if r.Verb == "patch" && r.Name == "web" && slow.Load() {
			select {
			case seen <- struct{}{}:
			default:
			}
			return applytest.Fault{Delay: 2 * time.Second}
		}
		return applytest.Fault{}
	})
	b.synced(1)
	slow.Store(true)
	changed := b.deployment("web")
	changed.Image = "registry.example.com/web:2"
	b.want(changed)
	<-seen
	b.want(b.stopped("web"))
	await.Eventually(b.t, "it is gone", func() bool { return !b.exists("replicaset", "web") && b.server.Instances()["web"] == nil })
	b.beats()
	require.False(b.t, b.exists("replicaset", "web"), "it stays so")
	require.True(b.t, b.exists("replicaset", "api"))
}

// tokenReplaced is D17.
func tokenReplaced(b *bench) {
	file := filepath.Join(b.t.TempDir(), "token")
	require.NoError(b.t, os.WriteFile(file, []byte("secret\n"), 0o600))
	b.agent.Config.Control.Token, b.agent.Config.TokenFile = "", file
	b.agent.Periods.Heartbeat = 100 * time.Millisecond
	b.want(b.deployment("web"))
	b.start()
	await.Eventually(b.t, "it runs", func() bool { return b.running("web") })
	// Without the heartbeats the streams would wait for half a minute each time.
	within := time.Now().Add(100 * time.Second)
	for n := range 4 {
		refused := `stream_connections_total{resource_type="deployments",status="unauthenticated"}`
		had := b.metric(refused)
		token := fmt.Sprint("new-", n)
		b.server.Set(controltest.Faults{Token: token})
		await.Eventually(b.t, "the old one is refused", func() bool { return b.metric(refused) != had })
		require.NoError(b.t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		before := b.server.Counts()
		await.Eventually(b.t, "the new token is used", func() bool {
			now := b.server.Counts()
			return now.Heartbeats > before.Heartbeats && now.Streams["deployments"] > before.Streams["deployments"]
		})
		require.True(b.t, time.Now().Before(within), "the streams do not wait for their pause")
	}
	require.Empty(b.t, b.deletes())
}

// refusals returns how many streams of deployments were refused their token.
func (b *bench) refusals() string {
	b.t.Helper()
	return b.metric(`stream_connections_total{resource_type="deployments",status="unauthenticated"}`)
}

// tokenFileReplaced is D17 without heartbeats: the new file alone ends the pauses of
// 30 s and more.
func tokenFileReplaced(b *bench) {
	file := filepath.Join(b.t.TempDir(), "token")
	require.NoError(b.t, os.WriteFile(file, []byte("secret\n"), 0o600))
	b.agent.Config.Control.Token, b.agent.Config.TokenFile = "", file
	b.agent.Periods.Heartbeat = time.Hour
	b.want(b.deployment("web"))
	b.start()
	b.synced(1)
	within := time.Now().Add(100 * time.Second)
	for n := range 4 {
		had, token := b.refusals(), fmt.Sprint("new-", n)
		b.server.Set(controltest.Faults{Token: token})
		await.Eventually(b.t, "the old one is refused", func() bool { return b.refusals() != had })
		require.NoError(b.t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		before := b.server.Counts()
		await.Eventually(
			b.t,
			"the new token is used",
			func() bool { return b.server.Counts().Streams["deployments"] > before.Streams["deployments"] },
		)
		require.True(b.t, time.Now().Before(within), "the streams do not wait for their pause")
	}
}

// streamsRevoked ends streams whose token is good again before they pause: no failed
// heartbeat precedes, and no heartbeat is due.
func streamsRevoked(b *bench) {
	b.agent.Periods.Heartbeat = time.Hour
	b.want(b.deployment("web"))
	b.start()
	b.synced(1)
	within := time.Now().Add(100 * time.Second)
	for range 4 {
		before, had := b.server.Counts(), b.refusals()
		b.server.Revoke()
		await.Eventually(b.t, "they are refused", func() bool { return b.refusals() != had })
		await.Eventually(
			b.t,
			"they are open again",
			func() bool { return b.server.Counts().Streams["deployments"] > before.Streams["deployments"] },
		)
		// One that is refused before its first message pauses: the token may be wrong.
		for range 2 {
			events := `stream_events_received_total{resource_type="deployments"}`
			had := b.metric(events)
			await.Eventually(b.t, "messages come", func() bool { return b.metric(events) != had })
		}
		require.True(b.t, time.Now().Before(within), "the streams do not wait for their pause")
	}
}
