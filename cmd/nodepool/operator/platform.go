package operator

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// awsPlatform is how EC2 shows on Nodes: the network plugin is aws-node, volumes are of EBS.
func awsPlatform() nodes.Platform {
	p := nodes.Zoned("aws", map[string]string{"k8s-app": "aws-node"})
	p.ZoneLabels = []string{"topology.ebs.csi.aws.com/zone"}
	return p
}

// view is what a watch has, and how many of its objects were taken in.
type view struct {
	synced func() (bool, error)
	keys   func(namespace string) []types.NamespacedName
	seen   int
}

// taken returns an error until each watch has listed its objects, and all were taken in.
func taken(views ...view) error {
	for _, v := range views {
		if ok, err := v.synced(); !ok {
			return errors.Join(errors.New("not everything is seen yet"), err)
		}
		if v.keys != nil && v.seen < len(v.keys("")) {
			return errors.New("not everything is read yet")
		}
	}
	return nil
}

// storage watches what decides where the claims of pods can be attached.
type storage struct {
	claims  kube.Controller[*corev1.PersistentVolumeClaim]
	volumes kube.Controller[*corev1.PersistentVolume]
	classes kube.Controller[*storagev1.StorageClass]
	limits  kube.Controller[*storagev1.CSINode]
}

// watchStorage gives the controllers their kinds and the cluster what they see.
func (o *operator) watchStorage() {
	s, c := &o.storage, o.cluster
	watch(&s.claims, o, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), c.SawClaim)
	watch(&s.volumes, o, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), named(c.SawVolume))
	watch(&s.classes, o, storagev1.SchemeGroupVersion.WithResource("storageclasses"), named(c.SawStorageClass))
	watch(&s.limits, o, storagev1.SchemeGroupVersion.WithResource("csinodes"), named(c.SawCSINode))
	watch(&o.budgets, o, policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), c.SawBudget)
	o.budgets.Kind.Drop = ""
}

// watch has a controller do nothing but show each object of a resource.
func watch[T metav1.Object](c *kube.Controller[T], o *operator, resource schema.GroupVersionResource, saw func(types.NamespacedName, T)) {
	c.Client, c.Logger = o.client, o.logger
	c.Kind = kube.Kind{Resource: resource, Drop: "status"}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, object T) (reconcile.Result, error) {
		saw(key, object)
		return reconcile.Result{}, nil
	}
}

// named is for objects without a namespace.
func named[T any](saw func(string, T)) func(types.NamespacedName, T) {
	return func(key types.NamespacedName, object T) { saw(key.Name, object) }
}

// storageSeen waits until all of it was taken in once. Pods with claims wait until then, others do
// not.
func (o *operator) storageSeen(ctx context.Context) error {
	s := &o.storage
	err := o.until(ctx, func() error {
		claims, volumes, classes, limits := o.cluster.SeenVolumes()
		return taken(
			view{s.claims.Synced, s.claims.Keys, claims}, view{s.volumes.Synced, s.volumes.Keys, volumes},
			view{s.classes.Synced, s.classes.Keys, classes}, view{s.limits.Synced, s.limits.Keys, limits},
		)
	})
	if err == nil {
		o.cluster.SawVolumes()
	}
	return err
}
