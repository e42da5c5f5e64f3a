package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

const label = "starform.io/"

// wanted returns what the database makes of the cluster.
func (b *bench) wanted(ctx context.Context) ([]*unstructured.Unstructured, error) {
	state, err := b.desired().DesiredState(ctx, b.id)
	if err != nil {
		return nil, err
	}
	dns := shuttle.DNSSelector{Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-dns"}}
	return shuttle.Render(state, b.id, shuttle.Rules{DNS: dns}).Objects, nil
}

func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

// at returns where an object of the resource is.
func (b *bench) at(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return b.objects.Resource(resource)
	}
	return b.objects.Resource(resource).Namespace(namespace)
}

// judge notes a deletion of what the control plane wants. It is asked before the deletion
// is sent.
func (b *bench) judge(r applytest.Request) applytest.Fault {
	if !strings.HasPrefix(r.Verb, "delete") {
		return applytest.Fault{}
	}
	objects, err := b.wanted(context.WithoutCancel(b.t.Context()))
	pulls := b.link.pulls()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pulled = append(b.pulled, pulls)
	if err != nil {
		b.wrong = append(b.wrong, fmt.Sprintf("%v, while what is wanted is unknown: %v", r, err))
		return applytest.Fault{}
	}
	for _, o := range objects {
		resource := resourceOf(o.GroupVersionKind())
		if resource.Group == r.Group && resource.Resource == r.Resource && o.GetNamespace() == r.Namespace &&
			(r.Name == "" || r.Name == o.GetName()) {
			b.wrong = append(b.wrong, fmt.Sprintf("%v, while it is wanted", r))
		}
	}
	return applytest.Fault{}
}

// list returns the objects of a kind that carry the id of the cluster.
func (b *bench) list(kind schema.GroupVersionKind) []unstructured.Unstructured {
	b.t.Helper()
	list, err := b.objects.Resource(resourceOf(kind)).List(b.t.Context(), metav1.ListOptions{LabelSelector: label + "cluster-id=" + b.id})
	require.NoError(b.t, err)
	return slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
}

// kindOf returns one of the kinds that the agent writes, or Pod.
func kindOf(name string) schema.GroupVersionKind {
	for _, kind := range shuttle.Kinds() {
		if kind.Kind == name {
			return kind
		}
	}
	return schema.GroupVersionKind{Version: "v1", Kind: name}
}

// count returns how many objects of a kind carry the id of the cluster.
func (b *bench) count(kind string) int {
	b.t.Helper()
	return len(b.list(kindOf(kind)))
}

// deployment returns the Deployment of a service in production, nil if there is none.
func (b *bench) deployment(name string) *appsv1.Deployment {
	b.t.Helper()
	return b.deploymentIn(production, name)
}

func (b *bench) deploymentIn(environment, name string) *appsv1.Deployment {
	b.t.Helper()
	list, err := b.kube.AppsV1().Deployments(b.namespace()).List(b.t.Context(), metav1.ListOptions{
		LabelSelector: label + "cluster-id=" + b.id + "," + label + "environment=" + environment + "," + label + "service-name=" + name,
	})
	require.NoError(b.t, err)
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i]
		}
	}
	return nil
}

// image returns the image of a service's container in production, empty if there is none.
func (b *bench) image(name string) string {
	b.t.Helper()
	if d := b.deployment(name); d != nil {
		return d.Spec.Template.Spec.Containers[0].Image
	}
	return ""
}

// uids returns the UIDs of the Deployments of services in production.
func (b *bench) uids(names ...string) map[string]types.UID {
	b.t.Helper()
	found := map[string]types.UID{}
	for _, name := range names {
		if d := b.deployment(name); d != nil {
			found[name] = d.UID
		}
	}
	return found
}

// deleteByHand deletes the Deployment of a service in production.
func (b *bench) deleteByHand(name string) types.UID {
	b.t.Helper()
	d := b.deployment(name)
	require.NotNil(b.t, d, name)
	require.NoError(b.t, b.kube.AppsV1().Deployments(b.namespace()).Delete(b.t.Context(), d.Name, metav1.DeleteOptions{}))
	return d.UID
}

// isBack reports whether a service in production has another Deployment than that one.
func (b *bench) isBack(name string, but types.UID) bool {
	b.t.Helper()
	d := b.deployment(name)
	return d != nil && d.UID != but
}

// edit changes the image of a service in production as a person would.
func (b *bench) edit(name, image string) {
	b.t.Helper()
	d := b.deployment(name)
	require.NotNil(b.t, d, name)
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	_, err := b.kube.AppsV1().
		Deployments(b.namespace()).
		Patch(b.t.Context(), d.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(b.t, err)
}

// differences returns how the cluster differs from what the database wants, as the API
// server sees it: what a server-side apply of each wanted object would change, and which
// objects are missing or too many.
func (b *bench) differences() (found []string) {
	b.t.Helper()
	ctx := b.t.Context()
	objects, err := b.wanted(ctx)
	require.NoError(b.t, err)
	wanted := map[string]bool{}
	for _, o := range objects {
		wanted[idOf(o)] = true
	}
	for _, o := range objects {
		id := idOf(o)
		at := b.at(resourceOf(o.GroupVersionKind()), o.GetNamespace())
		live, err := at.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found = append(found, id+" is missing")
			continue
		}
		require.NoError(b.t, err)
		applied, err := at.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "judge", Force: true})
		if err != nil {
			found = append(found, fmt.Sprintf("%s cannot be applied: %v", id, err))
			continue
		}
		for _, version := range []*unstructured.Unstructured{live, applied} {
			version.SetManagedFields(nil)
			version.SetResourceVersion("")
			version.SetGeneration(0)
			delete(version.Object, "status") // the controllers'
			if wanted[autoscalerOf(o)] {     // it has the replicas
				unstructured.RemoveNestedField(version.Object, "spec", "replicas")
			}
		}
		if difference := cmp.Diff(live.Object, applied.Object); difference != "" {
			found = append(found, id+" differs from what is wanted (+):\n"+difference)
		}
	}
	for _, kind := range shuttle.Kinds() {
		for _, o := range b.list(kind) {
			id := idOf(&o)
			if !wanted[id] && (o.GetLabels()[label+"managed-by"] != "" || !b.freed[o.GetUID()]) {
				found = append(found, id+" is too many")
			}
		}
	}
	return found
}

func idOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// autoscalerOf returns the autoscaler of a Deployment if it has one.
func autoscalerOf(o *unstructured.Unstructured) string {
	if o.GetKind() != "Deployment" {
		return ""
	}
	return "HorizontalPodAutoscaler " + o.GetNamespace() + "/" + o.GetName()
}

// asWanted waits until the cluster is what the database wants.
func (b *bench) asWanted() {
	b.t.Helper()
	var last []string
	defer func() {
		if b.t.Failed() {
			b.t.Log(strings.Join(last, "\n"))
		}
	}()
	await.Eventually(b.t, "the cluster is as wanted", func() bool {
		last = b.differences()
		return len(last) == 0
	})
}

// rows returns the times of the billing records of each pod, ascending.
func (b *bench) rows() map[string][]time.Time {
	b.t.Helper()
	rows := map[string][]time.Time{}
	require.NoError(b.t, b.desired().Database.Read(b.t.Context(), func(tx *controlplanetest.Tx) error {
		found, err := tx.QueryContext(b.t.Context(), `SELECT pod_id, taken_at FROM snapshots WHERE cluster_id = ? ORDER BY taken_at`, b.id)
		if err != nil {
			return err
		}
		for found.Next() {
			var pod string
			var at int64
			if err := found.Scan(&pod, &at); err != nil {
				return errors.Join(err, found.Close())
			}
			rows[pod] = append(rows[pod], time.UnixMilli(at).UTC())
		}
		return errors.Join(found.Err(), found.Close())
	}))
	return rows
}

// newest is the time of the newest record, zero for none.
func (b *bench) newest() (at time.Time) {
	b.t.Helper()
	for _, times := range b.rows() {
		if last := times[len(times)-1]; last.After(at) {
			at = last
		}
	}
	return at
}

// twice returns how many records there are beside another of the same pod and time.
func twice(rows map[string][]time.Time) (n int) {
	for _, times := range rows {
		n += len(times) - len(slices.Compact(slices.Clone(times)))
	}
	return n
}

// gaps counts the instants between the first and the last record of a pod that have none.
func gaps(times []time.Time, interval time.Duration) (n int) {
	for i := 1; i < len(times); i++ {
		n += int(times[i].Sub(times[i-1])/interval) - 1
	}
	return n
}
