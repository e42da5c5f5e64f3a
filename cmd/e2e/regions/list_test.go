package regions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// lists returns how many lists of the deployments the agent has got whole.
func (w *worker) lists() float64 {
	return w.metric(`watcher_full_syncs_total{resource_type="deployments"}`)
}

// all reports whether the region has exactly n deployments, all in Kubernetes.
func (b *bench) all(n int) bool {
	b.t.Helper()
	list, err := b.kube.AppsV1().ReplicaSets(b.name).List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	return len(list.Items) == n
}

// cutList is D8: the link breaks off the first list of 120 deployments again and again.
func cutList(b *bench, _ database) {
	t := b.t
	w := b.worker()
	names := deployments(120)
	b.want("1", names...)
	b.toxic("limit_data", `{"bytes":6000}`, func() {
		w.start()
		await.Eventually(t, "the list is cut again and again", func() bool {
			cut := 0.0
			for _, status := range []string{"failed", "ended"} {
				cut += w.metric(`stream_connections_total{resource_type="deployments",status="` + status + `"}`)
			}
			return cut >= 2
		})
		require.Zero(t, w.lists())
	})
	await.Eventually(t, "the next attempt completes", func() bool { return w.lists() > 0 && b.all(len(names)) })
	w.quiet()
	require.Empty(t, w.deletes())
	await.Eventually(t, "all are reported", func() bool { return b.runs("1", names...) })
}

// changeDuringList is D7: a change committed while a slow list is on its way arrives
// without a second list.
func changeDuringList(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Resync = time.Hour    // a point query that is ahead of the stream causes a list
	w.agent.Periods.Silence = time.Minute // one message takes some seconds
	names := deployments(120)
	b.want("1", names...)
	b.toxic("bandwidth", `{"rate":4}`, func() {
		w.start()
		await.Eventually(t, "the lists have begun", func() bool { return b.streams() == len(collections()) })
		b.want("1", "late")
		b.archive(names[0])
		require.Zero(t, w.lists(), "it goes on")
	})
	await.Eventually(t, "the change is there", func() bool { return b.replicaSet("late") != nil && b.replicaSet(names[0]) == nil })
	b.running("1", append(names[1:], "late")...)
	require.InDelta(t, 1, w.lists(), 0)
}

// reversedCommits is D6: a transaction that wrote first commits last.
func reversedCommits(b *bench, kind database) {
	t := b.t
	w := b.worker()
	b.want("1", "web", "api")
	w.start()
	b.running("1", "web", "api")
	commit, wrote := make(chan struct{}), make(chan struct{})
	committed := make(chan error, 1)
	go func() {
		var again atomic.Bool
		committed <- b.desired().Database.Write(context.WithoutCancel(t.Context()), func(tx *controlplanetest.Tx) error {
			err := b.archiveIn(tx, "d_web")
			if !again.Swap(true) {
				close(wrote)
			}
			<-commit
			return err
		})
	}()
	<-wrote
	if kind.Name == "sqlite" {
		// The second writer is queued until the first has committed.
		queued := make(chan struct{})
		go func() {
			defer close(queued)
			b.archive("api")
		}()
		b.t.Cleanup(func() { <-queued })
	} else {
		b.archive("api")
		await.Eventually(t, "the one that was committed goes", func() bool { return b.gone("api") })
		require.NotNil(t, b.replicaSet("web"))
	}
	close(commit)
	require.NoError(t, <-committed)
	await.Eventually(t, "both are gone", func() bool { return b.gone("web", "api") })
	require.InDelta(t, 1, w.lists(), 0)
}

// archiveIn archives a deployment in a transaction.
func (b *bench) archiveIn(tx *controlplanetest.Tx, id string) error {
	ctx := context.WithoutCancel(b.t.Context())
	if _, err := tx.ExecContext(
		ctx,
		`UPDATE deployment_topology SET desired_state = 'archived' WHERE deployment_id = ? AND region_id = ?`,
		id,
		b.id,
	); err != nil {
		return err
	}
	var spec string
	if err := tx.QueryRowContext(ctx, `SELECT spec FROM deployment_topology WHERE deployment_id = ? AND region_id = ?`, id, b.id).
		Scan(&spec); err != nil {
		return err
	}
	value, err := json.Marshal(map[string]any{"state": "archived", "apply": json.RawMessage(spec)})
	if err != nil {
		return err
	}
	return b.desired().Database.Log.Append(
		ctx,
		tx.Tx,
		statesync.Change{Scope: b.name, Key: statesync.Key{Collection: "deployments", ID: id}, Value: value},
	)
}

// belowFloor is D12: while the link is down, the log drops what the agent has not seen.
func belowFloor(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Resync = time.Hour
	names := deployments(9)
	b.want("1", names...)
	w.start()
	b.running("1", names...)
	w.quiet()
	uids, seen := b.uids(names...), w.metric(`watcher_version_last_seen{resource_type="deployments"}`)
	require.Positive(t, seen)
	w.refused("failed", b.proxy.Stop)
	b.byHand(
		fmt.Sprintf("DELETE FROM deployment_topology WHERE region_id = '%s' AND deployment_id IN ('d_%s', 'd_%s')", b.id, names[0], names[1]),
	)
	b.want("1", "late")
	log := b.desired().Database.Log
	log.Retention, log.Lease = time.Millisecond, time.Millisecond
	await.Eventually(t, "the log drops a tombstone that the agent has not seen", func() bool {
		require.NoError(t, log.Prune(t.Context()))
		page, err := log.Read(t.Context(), b.name, 0, 1000)
		require.NoError(t, err)
		return float64(page.Floor) > seen
	})
	// The replica may still have the tombstone in memory, and resume the stream rightly.
	b.replica()
	b.kill()
	require.NoError(t, b.proxy.Start())
	b.running("1", append(names[2:], "late")...)
	require.Positive(t, w.metric(`stream_connections_total{resource_type="deployments",status="resync"}`))
	w.quiet()
	require.Empty(t, w.deletes(), "one list is no proof")
	w.agent.Periods.Relist = often
	w.start()
	await.Eventually(t, "what the log no longer has goes", func() bool { return b.gone(names[0], names[1]) })
	for name, uid := range b.uids(names[2:]...) {
		require.Equal(t, uids[name], uid, name)
	}
}

// orphans is D9: of two ReplicaSets that the control plane does not have, the one with
// the agent's labels goes with the second list, the other stays.
func orphans(b *bench, _ database) {
	t := b.t
	w := b.worker()
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	w.stop()
	ours := maps.Clone(b.replicaSet("web").Labels)
	ours["unkey.com/deployment.id"] = "d_orphan"
	require.NoError(t, b.create("orphan", ours, metav1.CreateOptions{FieldManager: "krane"}))
	require.NoError(t, b.create("foreign", map[string]string{"app": "foreign"}, metav1.CreateOptions{}))
	w.start()
	w.synced(1, func() {})
	w.quiet()
	require.NotNil(t, b.replicaSet("orphan"), "one list is no proof")
	w.agent.Periods.Relist = often
	w.start()
	await.Eventually(t, "it goes after two lists", func() bool { return b.replicaSet("orphan") == nil })
	w.quiet()
	require.NotNil(t, b.replicaSet("foreign"))
	require.True(t, b.runs("1", "web"))
}

// orphansHeld is C16: more orphans than the limit wait for a person, who approves exactly
// these.
func orphansHeld(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = often
	w.agent.Periods.Absence = 2 * often
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	labels := maps.Clone(b.replicaSet("web").Labels)
	plant := func(name string) {
		labels["unkey.com/deployment.id"] = "d_" + name
		require.NoError(t, b.create(name, labels, metav1.CreateOptions{FieldManager: "krane"}))
	}
	names := []string{"orphan-0", "orphan-1", "orphan-2", "orphan-3", "orphan-4", "orphan-5"}
	w.stop()
	for _, name := range names {
		plant(name)
	}
	w.start()
	held := func() (digest string, count int) {
		region, _, err := b.desired().Resources(t.Context(), b.id)
		require.NoError(t, err)
		if region.HeldDeletions == nil {
			return "", 0
		}
		return region.HeldDeletions.Digest, region.HeldDeletions.Count
	}
	await.Eventually(t, "six are held, and reported", func() bool { _, count := held(); return count == 6 })
	require.InDelta(t, 6, w.metric(`deletions_held{reason="limit"}`), 0)
	for _, name := range names {
		require.NotNil(t, b.replicaSet(name))
	}
	digest, _ := held()
	b.want("2", "web") // another change does not spoil the approval
	require.True(t, b.admin(http.MethodPost, b.region+"/allow-mass-delete", map[string]any{"digest": digest}).Changed)
	await.Eventually(t, "they go", func() bool {
		for _, name := range names {
			if b.replicaSet(name) != nil {
				return false
			}
		}
		_, count := held()
		return count == 0
	})
	b.running("2", "web")
}

// kinds runs all collections, and removes a policy by its flag and by hand (D30).
func kinds(b *bench, _ database) {
	t := b.t
	w := b.worker()
	w.agent.Periods.Relist = often
	w.agent.Periods.Absence = 2 * often
	sentinel := map[string]any{
		"k8s_namespace": b.name, "k8s_name": "guard", "workspace_id": "ws_1", "project_id": "prj_1", "environment_id": "env_1", "app_id": "app_1",
		"image": image("1"), "replicas": 1, "cpu_millicores": "100", "memory_mib": "64",
	}
	b.admin(http.MethodPut, b.region+"/sentinels/s_guard", map[string]any{"desired_state": "running", "spec": sentinel})
	egress := func(names ...string) {
		for _, name := range names {
			b.admin(http.MethodPut, b.region+"/policies/p_"+name, map[string]any{"desired_state": "running", "spec": map[string]any{
				"k8s_namespace": b.name,
				"k8s_name":      name,
				"policy":        []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{}}}`),
			}})
		}
	}
	egress("one", "two", "three")
	b.want("1", "web")
	w.start()
	b.running("1", "web")
	await.Eventually(t, "the sentinel is reported", func() bool {
		guard := b.resource("sentinels", "guard")
		return guard.Health == "healthy" && guard.AvailableReplicas == 1
	})
	await.Eventually(t, "the policies are there", func() bool { return fmt.Sprint(b.policies()) == "[one three two web-frontline-ingress]" })
	w.quiet()
	b.admin(http.MethodDelete, b.region+"/policies/p_one", map[string]any{})
	await.Eventually(t, "the flagged one goes", func() bool { return fmt.Sprint(b.policies()) == "[three two web-frontline-ingress]" })
	b.byHand(fmt.Sprintf("DELETE FROM cilium_network_policies WHERE id = 'p_two' AND region_id = '%s'", b.id))
	await.Eventually(t, "the removed one goes", func() bool { return fmt.Sprint(b.policies()) == "[three web-frontline-ingress]" })
	b.admin(http.MethodDelete, b.region+"/sentinels/s_guard", map[string]any{})
	await.Eventually(t, "the sentinel goes", func() bool {
		list, err := b.kube.AppsV1().Deployments(b.name).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items) == 0
	})
	require.True(t, b.runs("1", "web"))
}

// refusedObject is D16: Kubernetes refuses one of many for ever.
func refusedObject(b *bench, _ database) {
	t := b.t
	allow := b.refuses("refused")
	w := b.worker()
	w.agent.Periods.Retry.Retries = 2
	names := deployments(30)
	b.want("1", append(names, "refused")...)
	w.start()
	b.running("1", names...)
	await.Eventually(t, "it is parked", func() bool { return w.metric(`parked_objects{resource_type="deployments"}`) == 1 })
	w.quiet()
	require.Nil(t, b.replicaSet("refused"))
	require.Empty(t, w.deletes())
	allow()
	w.start()
	b.running("1", "refused")
}

// refuses lets the API server admit no ReplicaSet of that name in the region's
// namespace, until allow is called.
func (b *bench) refuses(name string) (allow func()) {
	t := b.t
	policies, bindings := b.kube.AdmissionregistrationV1().
		ValidatingAdmissionPolicies(),
		b.kube.AdmissionregistrationV1().
			ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.name}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"replicasets"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "object.metadata.name != '" + name + "'", Message: "not this one"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bindings.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: b.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	given := metav1.ObjectMeta{Name: b.name, Labels: map[string]string{manifests.NamespaceLabel: manifests.Account}}
	_, err = b.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: given}, metav1.CreateOptions{})
	require.NoError(t, err)
	admitted := func() bool {
		err := b.create(name, nil, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			require.ErrorContains(t, err, "not this one")
		}
		return err == nil
	}
	await.Eventually(t, "it is refused", func() bool { return !admitted() })
	return func() {
		require.NoError(t, bindings.Delete(context.WithoutCancel(t.Context()), b.name, metav1.DeleteOptions{}))
		await.Eventually(t, "it is admitted", admitted)
	}
}

// create creates a ReplicaSet without pods.
func (b *bench) create(name string, labels map[string]string, options metav1.CreateOptions) error {
	selector := map[string]string{"orphan": name}
	_, err := b.kube.AppsV1().ReplicaSets(b.name).Create(b.t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			},
		},
	}, options)
	return err
}
