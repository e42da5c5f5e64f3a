package clusters_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// firstBuild is D1: two projects, three environments and five services from nothing, then
// C12: at rest nothing is written, and answers have no body.
func firstBuild(b *bench, _ database) {
	t := b.t
	b.project(mainProject, spec{"quota": spec{"pods": "50"}, "limits": spec{"default": spec{"memory": "256Mi"}}})
	b.project("blog", nil)
	group := uuid(b.name + " group")
	b.admin(
		http.MethodPut,
		"projects/"+b.projectID(mainProject)+"/var-groups/"+group,
		spec{"name": "shared", "entries": []spec{{"key": "PASSWORD", "value": "hunter2"}}},
		nil,
	)
	b.put(spec{
		"replicas": 2,
		"hostname": b.name + ".example.com",
		"deployment": spec{
			"id":           "d1",
			"build_id":     "b1",
			"git_sha":      "abc",
			"git_ref":      "main",
			"git_repo":     "shop",
			"deployed_at":  "2026-11-20T00:00:00Z",
			"deployed_by":  "ada",
			"change_cause": "first",
		},
	}, "web")
	b.admin(http.MethodPut, b.path(mainProject, production, "web")+"/var-groups", spec{"var_groups": []string{group}}, nil)
	b.put(spec{"autoscaling": spec{"min": 2, "max": 4, "cpu_percent": 80}}, "api")
	b.putIn(mainProject, "staging", "web", nil)
	b.putIn(mainProject, "staging", "api", nil)
	b.putIn("blog", "preview", "posts", nil)

	b.link.set(unavailable("desired-state"))
	a := b.agent().start()
	status, _ := a.ask("/healthz")
	require.Equal(t, http.StatusOK, status)
	await.Eventually(t, "it says what is missing", func() bool {
		status, text := a.ask("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		return strings.Contains(text, "starbase: not ready: no ")
	})
	b.link.set(nil)
	b.healthy(5)
	await.Eventually(t, "it is ready", func() bool { status, _ := a.ask("/readyz"); return status == http.StatusOK })
	b.asWanted()
	for kind, want := range map[string]int{
		"Namespace": 2, "ResourceQuota": 1, "LimitRange": 1, "ServiceAccount": 2, "Role": 2, "RoleBinding": 2, "NetworkPolicy": 3, "Secret": 1,
		"ConfigMap": 5, "Service": 5, "Deployment": 5, "PodDisruptionBudget": 5, "HorizontalPodAutoscaler": 1, "HTTPRoute": 1, "Pod": 7,
	} {
		require.Equal(t, want, b.count(kind), kind)
	}
	for _, kind := range []string{"ConfigMap", "Service", "Deployment", "PodDisruptionBudget", "Pod"} {
		for _, o := range b.list(kindOf(kind)) {
			requireLabels(b, kind+" "+o.GetName(), o.GetLabels())
		}
	}
	for _, o := range b.list(kindOf("Deployment")) {
		template, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		require.NoError(t, err)
		requireLabels(b, "template of "+o.GetName(), template)
	}
	web := b.deployment("web")
	for _, name := range []string{"deployment-id", "build-id", "git-sha", "git-ref", "git-repo", "deployed-at", "deployed-by"} {
		require.NotEmpty(t, web.Annotations[label+name], name)
	}
	require.Equal(t, "first", web.Annotations["kubernetes.io/change-cause"])
	for _, pod := range b.list(kindOf("Pod")) {
		phase, _, err := unstructured.NestedString(pod.Object, "status", "phase")
		require.NoError(t, err)
		require.Equal(t, "Running", phase, pod.GetName())
	}
	isolatedFirst(b, a.writes())

	a.quiet()
	writes, pulls := len(a.writes()), b.link.pulls()
	a.passes(20)
	require.Empty(t, a.since(writes), "at rest")
	for _, e := range b.link.to("desired-state")[pulls:] {
		if e.status != 0 {
			require.Equal(t, http.StatusNotModified, e.status)
		}
	}
	require.InDelta(t, 5, a.metric(`writes_total{resource="deployments",verb="patch"}`), 0)
	token, err := os.ReadFile(b.token)
	require.NoError(t, err)
	for _, secret := range []string{"hunter2", "hello", strings.TrimSpace(string(token))} {
		require.NotContains(t, b.log.String(), secret)
	}
	for _, e := range b.link.to("status") {
		require.NotContains(t, string(e.body), "hunter2")
	}
}

// scaling is C25: the replicas are the autoscaler's as long as the service has one, and the stated ones again after that.
func scaling(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web")
	a := b.agent().start()
	b.healthy(1)
	replicas := func() int32 { return *b.deployment("web").Spec.Replicas }
	require.EqualValues(t, 2, replicas())

	b.put(spec{"replicas": 3, "image": "example.com/web:2", "autoscaling": spec{"min": 1, "max": 4, "cpu_percent": 80}}, "web")
	await.Eventually(
		t,
		"it has an autoscaler",
		func() bool { return b.count("HorizontalPodAutoscaler") == 1 && b.image("web") == "example.com/web:2" },
	)
	b.asWanted()
	require.EqualValues(t, 2, replicas())
	scale, err := b.kube.AppsV1().Deployments(b.namespace()).GetScale(t.Context(), b.deployment("web").Name, metav1.GetOptions{})
	require.NoError(t, err)
	scale.Spec.Replicas = 4
	_, err = b.kube.AppsV1().Deployments(b.namespace()).UpdateScale(t.Context(), scale.Name, scale, metav1.UpdateOptions{})
	require.NoError(t, err)
	a.passes(5)
	b.asWanted()
	require.EqualValues(t, 4, replicas())

	b.put(spec{"replicas": 3, "image": "example.com/web:3"}, "web")
	await.Eventually(t, "the service has its replicas again", func() bool { return replicas() == 3 })
	b.asWanted()
	require.Zero(t, b.count("HorizontalPodAutoscaler"))
	b.healthy(1)
}

// requireLabels requires those that each object of a service has.
func requireLabels(b *bench, what string, labels map[string]string) {
	b.t.Helper()
	require.Equal(b.t, "shuttle", labels[label+"managed-by"], what)
	require.Equal(b.t, "nova", labels[label+"tier"], what)
	require.Equal(b.t, b.id, labels[label+"cluster-id"], what)
	for _, name := range []string{"workspace-id", "project-id", "environment", "service-id", "service-name"} {
		require.NotEmpty(b.t, labels[label+name], "%s of %s", name, what)
	}
}

// isolatedFirst requires the order of a first build: the namespace before all, its policy,
// quota and rights before the first Deployment. Each object is made by the first try.
func isolatedFirst(b *bench, writes []applytest.Request) {
	b.t.Helper()
	for _, namespace := range []string{b.namespace(), "proj-" + b.name + "-blog"} {
		var kinds []string
		for _, r := range writes {
			if r.Namespace != "starform-system" { // its own memory is saved again if no answer comes within a second
				require.Equal(b.t, http.StatusCreated, r.Status, r.String())
			}
			if r.Resource == "namespaces" && r.Name == namespace {
				kinds = append(kinds, r.Resource)
			}
			if r.Namespace == namespace {
				kinds = append(kinds, r.Resource)
			}
		}
		require.Equal(b.t, "namespaces", kinds[0])
		first := slices.Index(kinds, "deployments")
		require.Positive(b.t, first)
		for _, before := range []string{"resourcequotas", "limitranges", "serviceaccounts", "roles", "rolebindings", "networkpolicies", "secrets", "configmaps"} {
			require.NotContains(b.t, kinds[first:], before, "%v", kinds)
		}
	}
}

// drift is D2: manual deletions and edits are reverted, and nothing else is written.
func drift(b *bench, _ database) {
	t := b.t
	b.put(spec{"replicas": 2}, "web", "api", "job")
	a := b.agent().start()
	b.healthy(3)
	a.quiet()
	writes := len(a.writes())
	web, api := b.deployment("web"), b.deleteByHand("api")
	b.edit("web", "example.com/wrong")
	_, err := b.kube.AppsV1().
		Deployments(b.namespace()).
		Patch(t.Context(), web.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"someone.example.com/note":"theirs"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	await.Eventually(t, "both are right again", func() bool { return b.isBack("api", api) && b.image("web") == "example.com/web:1" })
	b.healthy(3)
	a.quiet()
	var changed []string
	for _, r := range a.writes()[writes:] {
		changed = append(changed, r.Verb+" "+r.Resource+" "+r.Name)
	}
	slices.Sort(changed)
	want := []string{"patch deployments " + web.Name, "patch deployments " + b.deployment("api").Name}
	slices.Sort(want)
	require.Equal(t, want, changed, "no other write")
	require.Equal(t, web.UID, b.deployment("web").UID)
	require.Equal(t, "theirs", b.deployment("web").Annotations["someone.example.com/note"], "it is not ours")
	b.asWanted()
}

// labelStrip is D3 and C8: a Service without the label is ours all the same.
func labelStrip(b *bench, _ database) {
	t := b.t
	b.put(nil, "web")
	a := b.agent().start()
	b.healthy(1)
	a.quiet()
	failed := a.metric("reconcile_errors_total") // before the cluster was listed
	services := b.kube.CoreV1().Services(b.namespace())
	before, err := services.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, before.Items, 1)
	name := before.Items[0].Name
	_, err = services.Patch(
		t.Context(),
		name,
		types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/labels/starform.io~1managed-by"}]`),
		metav1.PatchOptions{},
	)
	require.NoError(t, err)
	await.Eventually(t, "the label is back", func() bool {
		s, err := services.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return s.Labels[label+"managed-by"] == "shuttle"
	})
	a.quiet()
	after, err := services.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, after.Items, 1, "no second Service")
	require.Equal(t, before.Items[0].UID, after.Items[0].UID)
	b.healthy(1)
	require.InDelta(t, failed, a.metric("reconcile_errors_total"), 0)
}

// pulledDigest is what the simulated nodes report for an image that is named by a tag.
func pulledDigest(image string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image))) }

// rollout is D4: another image rolls the Deployment, and the reports go from Progressing
// to Healthy with the new digest and generation. The images are named by tags: the digests
// are those that the nodes have pulled.
func rollout(b *bench, _ database) {
	t := b.t
	const first, second = "example.com/web:1", "example.com/web:2"
	b.put(spec{"image": first, "replicas": 3}, "web")
	b.put(nil, "api")
	b.agent().start()
	b.healthy(2)
	await.Eventually(t, "the digest is reported", func() bool { return b.stands("web").ImageDigest == pulledDigest(first) })
	reports := len(b.link.to("status"))
	before := b.deployment("web")
	// By hand, no further pod can be made for a while.
	quotas := b.kube.CoreV1().ResourceQuotas(b.namespace())
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Name: "full",
		},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("4")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.put(spec{"image": second, "replicas": 3}, "web")
	generation := int64(b.generation())
	await.Eventually(t, "it is reported as progressing, and why no further", func() bool {
		s := b.stands("web")
		return s.Standing == "Progressing" && s.ObservedGeneration == generation && s.ErrorClass == string(readiness.Quota)
	})
	require.NoError(t, quotas.Delete(t.Context(), "full", metav1.DeleteOptions{}))
	await.Eventually(t, "the new digest is reported as healthy", func() bool {
		s := b.stands("web")
		return s.Standing == "Healthy" && s.ImageDigest == pulledDigest(second) && s.ObservedGeneration == generation && s.Ready == 3 &&
			s.Desired == 3
	})
	after := b.deployment("web")
	require.Equal(t, before.UID, after.UID)
	require.Greater(t, after.Generation, before.Generation)
	var phases []starbase.Phase
	for _, e := range b.link.to("status")[reports:] {
		var report starbase.StatusReport
		require.NoError(t, json.Unmarshal(e.body, &report))
		require.Equal(t, http.StatusNoContent, e.status, string(e.answer))
		for _, s := range report.Services {
			if s.Identity() == b.identity("web", production) && s.ObservedGeneration == generation && !slices.Contains(phases, s.Phase) {
				phases = append(phases, s.Phase)
			}
			if s.Phase == starbase.PhaseHealthy && s.Identity() == b.identity("web", production) && s.ObservedGeneration == generation {
				require.Equal(t, 3, s.Ready)
			}
		}
	}
	require.Equal(t, []starbase.Phase{starbase.PhaseProgressing, starbase.PhaseHealthy}, phases)
}

// tombstone is D6: the objects of a deleted service go in the reverse of their order; the
// namespace, and what else it has, stays.
func tombstone(b *bench, _ database) {
	t := b.t
	b.put(spec{"hostname": b.name + ".example.com"}, "web")
	b.put(nil, "api")
	a := b.agent().start()
	b.healthy(2)
	a.quiet()
	writes, kept := len(a.writes()), b.uids("api")
	b.remove("web")
	pulls := b.link.pulls()
	await.Eventually(t, "it is gone, and reported so", func() bool { return b.stands("web").Standing == "Deleted" })
	require.LessOrEqual(t, b.pulled[0], pulls+2, "its deletion does not wait for more answers")
	b.asWanted()
	a.quiet()
	var gone []string
	noted := a.writes()[writes]
	require.Equal(t, "create configmaps starform-system/", noted.String(), "what goes is noted before")
	for _, r := range a.writes()[writes+1:] {
		require.Equal(t, "delete", r.Verb, r.String())
		gone = append(gone, r.Resource)
	}
	before := func(first, then string) {
		t.Helper()
		require.Contains(t, gone, first)
		require.Contains(t, gone, then)
		require.Less(t, slices.Index(gone, first), slices.Index(gone, then), "%v", gone)
	}
	before("httproutes", "deployments")
	before("poddisruptionbudgets", "deployments")
	before("deployments", "services")
	before("services", "configmaps")
	require.Len(t, gone, 5)
	require.Equal(t, 1, b.count("Namespace"))
	require.Equal(t, 1, b.count("NetworkPolicy"))
	require.Equal(t, kept, b.uids("api"))
	b.remove("api")
	await.Eventually(t, "that nothing is left is reported as well", func() bool { return b.stands("api").Standing == "Deleted" })
	require.Zero(t, b.count("Deployment"))
}

// slowLoss is D32 and D33: services vanish one after the other, without tombstones. At most
// five go and the rest is held, whatever time passes and over a restart; one more is not
// covered by the approval of the others. How many of the five go depends on how many are
// decided about at once: what would exceed the limit is held together.
func slowLoss(b *bench, _ database) {
	t := b.t
	all := names(12)
	b.put(nil, all...)
	a := b.agent().start()
	b.healthy(len(all))
	a.quiet()
	lose := func(name string) { b.byHand("DELETE FROM services WHERE service_id = '" + uuid("service "+name) + "'") }
	for _, name := range all[:9] {
		lose(name)
		time.Sleep(3 * time.Second)
	}
	left := func() int { return len(b.uids(all[:9]...)) }
	held, stand := b.heldDeletions(), 0
	await.Eventually(t, "all that stand are held", func() bool {
		held, stand = b.heldDeletions(), left()
		return held.Count > 0 && held.Count == stand
	})
	require.GreaterOrEqual(t, stand, 4, "at most five are gone")
	require.Contains(t, held.Units[0].Reason, "the limit is 5")
	await.Eventually(t, "they are counted", func() bool { return a.metric(`deletions_held{reason="limit"}`) >= float64(stand) })
	a.stop()
	a = b.agent().start()
	lose(all[9])
	await.Eventually(t, "one more is held", func() bool { return b.heldDeletions().Count == stand+1 })
	require.Equal(t, http.StatusConflict, b.approve(held.Digest), "one more is not covered")
	require.Equal(t, stand, left())
	require.Equal(t, http.StatusOK, b.approve(b.heldDeletions().Digest))
	await.Eventually(t, "all that was approved goes", func() bool { return left() == 0 && len(b.uids(all[9])) == 0 })
	b.asWanted()
	b.healthy(2)
	require.Zero(t, a.metric(`deletions_held{reason="limit"}`))
}

// absence is D7 and C3: a service whose row is deleted, without a tombstone, is deleted
// after a minute of complete answers.
func absence(b *bench, _ database) {
	t := b.t
	b.put(nil, "web", "api")
	a := b.agent().start()
	b.healthy(2)
	a.quiet()
	kept := b.uids("api")
	b.byHand("DELETE FROM services WHERE service_id = '" + uuid("service web") + "'")
	absent := time.Now()
	await.Eventually(t, "the agent holds it, and says so", func() bool {
		s := b.stands("web")
		return a.metric(`deletions_held{reason="grace"}`) > 0 && s.ErrorClass == starbase.ClassDeletionHeld
	})
	a.passes(5)
	require.Empty(t, a.deletes())
	require.Len(t, b.uids("web"), 1)
	await.Eventually(t, "it goes", func() bool { return len(b.uids("web")) == 0 })
	require.GreaterOrEqual(t, time.Since(absent), time.Minute)
	b.asWanted()
	require.Equal(t, kept, b.uids("api"))
	for _, r := range a.deletes() {
		require.True(t, strings.Contains(r.Name, "web"), r.String())
	}
}
