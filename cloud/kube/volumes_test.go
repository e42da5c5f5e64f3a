package kube_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// ebs is the driver of the volumes of the tests.
const ebs = "ebs.csi.example.com"

// store has the objects that decide where claims go.
type store struct {
	claims  map[string]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
}

func newStore() *store {
	s := &store{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{},
	}
	later, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	for _, c := range []struct {
		name, provisioner string
		mode              *storagev1.VolumeBindingMode
		zones             []string
	}{
		{"later", ebs, &later, nil},
		{"later-x", ebs, &later, []string{"x"}},
		{"later-xy", ebs, &later, []string{"x", "y"}},
		{"now", ebs, &now, nil},
		{"static", "kubernetes.io/no-provisioner", &later, nil},
	} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Provisioner: c.provisioner, VolumeBindingMode: c.mode}
		if c.zones != nil {
			class.AllowedTopologies = []corev1.TopologySelectorTerm{{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: c.zones}},
			}}
		}
		s.classes[c.name] = class
	}
	return s
}

func (s *store) finder() kube.Volumes {
	return kube.Volumes{
		Claim:  func(namespace, name string) *corev1.PersistentVolumeClaim { return s.claims[namespace+"/"+name] },
		Volume: func(name string) *corev1.PersistentVolume { return s.volumes[name] },
		Class:  func(name string) *storagev1.StorageClass { return s.classes[name] },
	}
}

// claim adds a claim of a class. change may be nil.
func (s *store) claim(name, class string, change func(*corev1.PersistentVolumeClaim)) {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "volumes", Name: name, Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: list("", "", "storage", "1Gi")},
		},
	}
	if change != nil {
		change(c)
	}
	s.claims[c.Namespace+"/"+name] = c
}

// bound adds a claim with its volume.
func (s *store) bound(name string, change func(*corev1.PersistentVolume)) {
	s.claim(name, "now", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pv-" + name
		c.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	})
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "now", Capacity: list("", "", "storage", "1Gi"),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: name}},
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "volumes", Name: name},
		},
	}
	if change != nil {
		change(v)
	}
	s.volumes[v.Name] = v
}

// inZones is the node affinity of a volume.
func inZones(zones ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: zones}},
		}}}}
	}
}

func labelled(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Labels = map[string]string{key: value} }
}

// kinds adds a claim of each kind, with the suffix of a pod.
func (s *store) kinds(suffix string) {
	s.bound("free"+suffix, nil)
	s.bound("in-x"+suffix, inZones("x"))
	s.bound("in-xy"+suffix, inZones("x", "y"))
	s.bound("nowhere"+suffix, inZones("w"))
	s.bound("label-y"+suffix, labelled(corev1.LabelTopologyZone, "y"))
	s.bound("label-xz"+suffix, labelled(corev1.LabelTopologyZone, "x__z"))
	s.bound("beta-y"+suffix, labelled(corev1.LabelFailureDomainBetaZone, "y"))
	s.bound("no-terms"+suffix, func(v *corev1.PersistentVolume) {
		inZones("x")(v)
		v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = nil
	})
	s.bound("not-csi"+suffix, func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}
	})
	s.claim("later"+suffix, "later", nil)
	s.claim("later-x"+suffix, "later-x", nil)
	s.claim("later-xy"+suffix, "later-xy", nil)
	s.claim("now"+suffix, "now", nil)
	s.claim("static"+suffix, "static", nil)
	s.claim("no-class"+suffix, "missing", nil)
	s.claim("empty-class"+suffix, "", nil)
	s.claim("chosen"+suffix, "later", func(c *corev1.PersistentVolumeClaim) { c.Annotations["volume.kubernetes.io/selected-node"] = "node-y" })
	s.claim("binding"+suffix, "later", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-binding" })
	s.claim("lost"+suffix, "now", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations["pv.kubernetes.io/bind-completed"] = "pv-missing", "yes"
	})
}

// kinds lists the claims of store.kinds, and one that does not exist.
var claimKinds = []string{
	"free", "in-x", "in-xy", "nowhere", "label-y", "label-xz", "beta-y", "no-terms", "not-csi", "later", "later-x", "later-xy", "now",
	"static", "no-class", "empty-class", "chosen", "binding", "lost", "absent",
}

func zoned(zone string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{
		"batch": "volumes", corev1.LabelTopologyZone: zone, hostKey: "node-" + zone,
	}}}
	n.Status.Allocatable = list("64", "64Gi", "pods", "200")
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// mounting is a pod with claims, for one node.
func mounting(name, node string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "volumes", Name: name, UID: types.UID(name), Labels: map[string]string{"batch": "volumes"}},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{hostKey: node}, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list("100m", "")},
		}}},
	}
	for i, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return p
}

// limits are how many volumes the nodes of the tests take. node-z states none.
var limits = map[string]*storagev1.CSINode{"node-x": attaches("node-x", 3), "node-y": attaches("node-y", 1)}

func attaches(node string, count int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: ebs, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &count}}, {Name: "other", NodeID: node},
	}}}
}

// place returns whether a pod has a place on a node with other pods.
func (s *store) place(p *corev1.Pod, n *corev1.Node, others ...*corev1.Pod) bool {
	convert := func(p *corev1.Pod) *demand.Pod {
		pod := s.finder().Attach(kube.PodWithoutClaims(p), kube.Claims(p)...)
		return &pod
	}
	node, pod := kube.Node(n), convert(p)
	for _, o := range others {
		node.Pods = append(node.Pods, convert(o))
	}
	node.Allocatable.Extended = map[string]int64{}
	for name := range pod.Requests.Extended {
		node.Allocatable.Extended[name] = kube.Unlimited
	}
	maps.Copy(node.Allocatable.Extended, kube.AttachLimits(limits[n.Name]))
	return len(demand.Place(demand.Input{Pods: []*demand.Pod{pod}, Nodes: []*demand.Node{&node}}).Placements) == 1
}

// TestTheSchedulerAttachesVolumesWhereAttachSays gives each kind of claim to a pod for each of three
// nodes, and then as many volumes as a node takes and one more.
func TestTheSchedulerAttachesVolumesWhereAttachSays(t *testing.T) {
	c := startCluster(t)
	s := newStore()
	c.namespace(t, "volumes", nil)
	nodes := map[string]*corev1.Node{}
	for _, zone := range []string{"x", "y", "z"} {
		n := zoned(zone)
		nodes[n.Name] = n
	}
	c.addNodes(t, slices.Collect(maps.Values(nodes)))
	for _, n := range limits {
		c.make(t, storagev1.SchemeGroupVersion.WithResource("csinodes"), "CSINode", n)
	}
	for _, class := range s.classes {
		c.make(t, storagev1.SchemeGroupVersion.WithResource("storageclasses"), "StorageClass", class)
	}
	var pods []*corev1.Pod
	for name := range nodes {
		s.kinds("-" + name)
		for _, kind := range claimKinds {
			if kind == "chosen" && name == "node-y" {
				continue // the choice is there before the verdict
			}
			pods = append(pods, mounting(kind+"-"+name, name, kind+"-"+name))
		}
	}
	c.storage(t, s)
	placed := 0
	for _, kind := range claimKinds { // one at a time, so that none counts beside another
		batch := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Name != kind+"-"+p.Spec.NodeSelector[hostKey] })
		for name, got := range c.verdicts(t, batch) {
			p := batch[slices.IndexFunc(batch, func(p *corev1.Pod) bool { return p.Name == name })]
			require.Equal(t, got, s.place(p, nodes[p.Spec.NodeSelector[hostKey]]), name)
			if got {
				placed++
			}
		}
	}
	require.Greater(t, placed, len(pods)/4)
	require.Less(t, placed, len(pods)*3/4)

	// As many as a node takes.
	for name := range nodes {
		for i := range 5 {
			s.bound(fmt.Sprintf("more-%d-%s", i, name), nil)
		}
	}
	c.storage(t, s)
	var on []*corev1.Pod
	agreed := map[bool]int{}
	for _, step := range []struct {
		node   string
		volume []int
	}{{"node-y", []int{0}}, {"node-y", []int{1}}, {"node-x", []int{0, 1}}, {"node-x", []int{2, 3}}, {"node-x", []int{2}}, {"node-z", []int{0, 1, 2, 3, 4}}} {
		var claims []string
		for _, i := range step.volume {
			claims = append(claims, fmt.Sprintf("more-%d-%s", i, step.node))
		}
		p := mounting(fmt.Sprintf("more-%d", len(on)), step.node, claims...)
		others := slices.DeleteFunc(slices.Clone(on), func(o *corev1.Pod) bool { return o.Spec.NodeName != step.node })
		want := s.place(p, nodes[step.node], others...)
		created := c.addPods(t, []*corev1.Pod{p}, false)[0]
		got, done := c.wait(t, "volumes", 20*time.Second, func(pods []*corev1.Pod) bool {
			i := slices.IndexFunc(pods, func(o *corev1.Pod) bool { return o.UID == created.UID })
			return i >= 0 && (pods[i].Spec.NodeName != "" || refused(pods[i]))
		})
		require.True(t, done)
		p = got[slices.IndexFunc(got, func(o *corev1.Pod) bool { return o.UID == created.UID })]
		require.Equal(t, p.Spec.NodeName != "", want, "%v on %s", step.volume, step.node)
		agreed[want]++
		on = append(on, p)
	}
	require.Equal(t, map[bool]int{true: 4, false: 2}, agreed)
}

// make creates an object of a cluster.
func (c *cluster) make(t *testing.T, resource schema.GroupVersionResource, kind string, o metav1.Object) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(kind)
	_, err = c.client.Resource(resource).Namespace(o.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{})
	require.NoError(t, err)
}

// storage creates the claims and volumes of a store that are not there yet.
func (c *cluster) storage(t *testing.T, s *store) {
	t.Helper()
	for _, v := range s.volumes {
		if _, err := c.resource("persistentvolumes", "").Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil {
			c.make(t, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "PersistentVolume", v)
		}
	}
	for _, claim := range s.claims {
		if _, err := c.resource("persistentvolumeclaims", claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{}); err != nil {
			c.make(t, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "PersistentVolumeClaim", claim)
		}
	}
}

// verdicts creates pods, and returns which of them the scheduler has a node for: it binds the
// pod, or has a volume made for a claim on that node. Then the pods are deleted.
func (c *cluster) verdicts(t *testing.T, pods []*corev1.Pod) map[string]bool {
	t.Helper()
	c.addPods(t, pods, false)
	verdict := map[string]bool{}
	require.Eventually(t, func() bool {
		now, _ := c.wait(t, "volumes", 0, func([]*corev1.Pod) bool { return true })
		for _, p := range now {
			if p.Spec.NodeName != "" {
				verdict[p.Name] = true
			} else if refused(p) {
				verdict[p.Name] = false
			}
			claim, err := c.resource("persistentvolumeclaims", p.Namespace).
				Get(t.Context(), p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
			if err == nil && p.Spec.NodeSelector[hostKey] == claim.GetAnnotations()["volume.kubernetes.io/selected-node"] {
				verdict[p.Name] = true
			}
		}
		return len(verdict) == len(pods)
	}, time.Minute, 50*time.Millisecond)
	now := int64(0)
	require.NoError(t, c.resource("pods", "volumes").
		DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "batch=volumes"}))
	_, gone := c.wait(t, "volumes", time.Minute, func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	require.True(t, gone)
	return verdict
}

// TestAClaimThatKeepsItsPodWaitingSaysWhy has the claims for which no machine would help.
func TestAClaimThatKeepsItsPodWaitingSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.kinds("")
	s.claim("going", "later", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	s.claim("alone", "later", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	owner := func(uid types.UID) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: new(true)}}
		}
	}
	s.claim("p-own", "later", owner("p"))
	s.claim("p-other", "later", owner("q"))
	for claim, want := range map[string]string{
		"free": "", "later": "", "in-x": "", "p-own": "",
		"absent":      "claim absent does not exist",
		"going":       "claim going is being deleted",
		"alone":       "claim alone is for one pod alone: whether another uses it is not known",
		"lost":        "claim lost has volume pv-missing, which does not exist",
		"now":         "claim now is not bound yet",
		"binding":     "claim binding is not bound yet",
		"empty-class": "claim empty-class has no storage class, and is not bound yet",
		"no-class":    "claim no-class has storage class missing, which does not exist",
		"static":      "claim static needs a volume that is there already: storage class static makes none",
		"p-other":     "claim p-other is not the pod's own",
	} {
		p := mounting("p", "node-x", claim)
		if volume, ephemeral := map[string]string{"p-own": "own", "p-other": "other"}[claim]; ephemeral {
			p.Spec.Volumes = []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}
		before := kube.PodWithoutClaims(p)
		pod := s.finder().Attach(before, kube.Claims(p)...)
		if want == "" {
			require.Empty(t, pod.Unmodelled, claim)
			require.Equal(t, map[string]int64{kube.AttachLimit(ebs): 1}, pod.Requests.Extended, claim)
		} else {
			require.Equal(t, []string{want}, pod.Unmodelled)
		}
		require.Empty(t, before.Unmodelled, "the argument stays as it was")
		require.Empty(t, before.Requests.Extended)
	}
}

// TestAttachKeepsEachConditionAndItsArgument has a volume with a node affinity and labels, and a pod that
// requests a device.
func TestAttachKeepsEachConditionAndItsArgument(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.bound("both", func(v *corev1.PersistentVolume) {
		inZones("x")(v)
		v.Labels = map[string]string{corev1.LabelTopologyZone: "y", corev1.LabelTopologyRegion: "r"}
	})
	p := mounting("p", "node-x", "both")
	p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = list("", "", "n", "1")["n"]
	base := kube.PodWithoutClaims(p)
	for range 2 {
		pod := s.finder().Attach(base, kube.Claims(p)...)
		require.Equal(t, map[string]int64{"example.com/gpu": 1, kube.AttachLimit(ebs): 1}, pod.Requests.Extended)
		var keys []string
		for _, v := range pod.Volumes {
			keys = append(keys, v.Nodes[0].Labels[0].Key+"="+v.Nodes[0].Labels[0].Values[0])
		}
		require.Equal(t, []string{corev1.LabelTopologyZone + "=x", corev1.LabelTopologyZone + "=y", corev1.LabelTopologyRegion + "=r"}, keys)
	}
	require.Equal(t, map[string]int64{"example.com/gpu": 1}, base.Requests.Extended)

	s.claim("old", "now", func(c *corev1.PersistentVolumeClaim) { c.Annotations[corev1.BetaStorageClassAnnotation] = "later" })
	require.Empty(t, s.finder().Attach(base, kube.Claim{Namespace: "volumes", Name: "old"}).Unmodelled, "the annotation counts")
}
