package nodes

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// volumes are the objects that decide where the claims of pods can be attached.
type volumes struct {
	known   bool // all of them were seen once
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	limits  map[string]*map[string]int64 // by the name of a Node: how many volumes it takes, by resource
	waiting int                          // pods with claims that wait
}

func newVolumes() volumes {
	return volumes{
		claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, limits: map[string]*map[string]int64{},
	}
}

// SawClaim stores a PersistentVolumeClaim, which is nil if it is deleted.
func (c *Cluster) SawClaim(key types.NamespacedName, claim *corev1.PersistentVolumeClaim) {
	put(c, c.volumes.claims, key, claim)
}

// SawVolume stores a PersistentVolume, which is nil if it is deleted.
func (c *Cluster) SawVolume(name string, volume *corev1.PersistentVolume) {
	put(c, c.volumes.volumes, name, volume)
}

// SawStorageClass stores a StorageClass, which is nil if it is deleted.
func (c *Cluster) SawStorageClass(name string, class *storagev1.StorageClass) {
	put(c, c.volumes.classes, name, class)
}

// SawCSINode stores how many volumes a Node takes. It is nil if it is deleted.
func (c *Cluster) SawCSINode(name string, n *storagev1.CSINode) {
	if n == nil {
		put(c, c.volumes.limits, name, nil)
		return
	}
	limits := kube.AttachLimits(n)
	put(c, c.volumes.limits, name, &limits)
}

// SeenVolumes returns how many claims, volumes, classes and CSINodes are stored.
func (c *Cluster) SeenVolumes() (claims, volumes, classes, csiNodes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &c.volumes
	return len(v.claims), len(v.volumes), len(v.classes), len(v.limits)
}

// SawVolumes says that all claims, volumes, classes and CSINodes that there are were stored.
// Until then a pod with claims starts no machine.
func (c *Cluster) SawVolumes() {
	c.mu.Lock()
	c.volumes.known = true
	c.mu.Unlock()
	c.changed(nil, true)
}

func put[K comparable, V any](c *Cluster, all map[K]*V, key K, value *V) {
	c.mu.Lock()
	if value == nil {
		delete(all, key)
	} else {
		all[key] = value
	}
	matters := c.volumes.waiting > 0
	c.mu.Unlock()
	if matters {
		c.changed(nil, true)
	}
}

// attach returns a pod with what its claims demand of a node.
func (v *volumes) attach(p *PodView) *demand.Pod {
	if len(p.claims) == 0 {
		return p.Pod
	}
	if !v.known {
		pod := *p.Pod
		pod.Unmodelled = append(slices.Clip(pod.Unmodelled), "the claims of the cluster are not read yet")
		return &pod
	}
	pod := kube.Volumes{
		Claim: func(namespace, name string) *corev1.PersistentVolumeClaim {
			return v.claims[types.NamespacedName{Namespace: namespace, Name: name}]
		},
		Volume: func(name string) *corev1.PersistentVolume { return v.volumes[name] },
		Class:  func(name string) *storagev1.StorageClass { return v.classes[name] },
	}.Attach(*p.Pod, p.claims...)
	return &pod
}

// Limit states in the Allocatable of a node how many volumes it takes, of the drivers that
// waiting pods need: by its CSINode, or else by the first of the Nodes like it that has one. A
// machine without either, and a driver that none of them names, has no limit.
func (s Snapshot) Limit(node *demand.Node, like ...string) {
	if len(s.drivers) == 0 {
		return
	}
	var limits map[string]int64
	for _, name := range append([]string{node.Name}, like...) {
		if of := s.c.volumes.limits[name]; of != nil && len(*of) > 0 {
			limits = *of
			break
		}
	}
	extended := maps.Clone(node.Allocatable.Extended)
	if extended == nil {
		extended = map[string]int64{}
	}
	for resource := range s.drivers {
		extended[resource] = kube.Unlimited
		if n, limited := limits[resource]; limited {
			extended[resource] = n
		}
	}
	node.Allocatable.Extended = extended
}
