package operator

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// recorder writes Events.
type recorder struct{ writer *kube.Events }

func newRecorder(client dynamic.Interface, instance string, logger *slog.Logger) *recorder {
	return &recorder{&kube.Events{Client: client, Controller: v1alpha1.Group + "/nodepool", Instance: instance, Logger: logger}}
}

func (r *recorder) pool(p *v1alpha1.NodePool, eventType, reason, note string) {
	r.writer.Record(v1alpha1.GroupVersion().WithKind("NodePool"), p, eventType, reason, note)
}

func (r *recorder) class(c *v1alpha1.AWSNodeClass, eventType, reason, note string) {
	r.writer.Record(v1alpha1.GroupVersion().WithKind("AWSNodeClass"), c, eventType, reason, note)
}

func (r *recorder) node(n *corev1.Node, eventType, reason, note string) {
	r.writer.Record(corev1.SchemeGroupVersion.WithKind("Node"), n, eventType, reason, note)
}

// unplaced tells a pod that no pool has a machine for it.
func (r *recorder) unplaced(p *demand.Pod, note string) {
	about := &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	r.writer.Record(corev1.SchemeGroupVersion.WithKind("Pod"), about, kube.EventWarning, "NoMachineFits", note)
}

// action records the result of an action on a machine.
func (r *recorder) action(pool *v1alpha1.NodePool, result cloud.Result) {
	for _, e := range pools.Events(result.Action) {
		r.pool(pool, e.Type, e.Reason, e.Note)
	}
}
