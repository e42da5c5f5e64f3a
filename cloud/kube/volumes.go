package kube

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// A Claim is a PersistentVolumeClaim that a pod mounts.
type Claim struct {
	Namespace, Name string
	// Owner is the UID of the pod that must own the claim, of an ephemeral volume; else empty.
	Owner string
}

// Claims returns the claims of p, each once.
func Claims(p *corev1.Pod) []Claim {
	var all []Claim
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		claim := Claim{Namespace: p.Namespace}
		switch {
		case v.PersistentVolumeClaim != nil:
			claim.Name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			claim.Name, claim.Owner = p.Name+"-"+v.Name, string(p.UID)
		default:
			continue
		}
		if !slices.Contains(all, claim) {
			all = append(all, claim)
		}
	}
	return all
}

// Volumes finds the objects that decide where claims can be attached. A function returns nil
// for an object that does not exist. All are required.
type Volumes struct {
	Claim  func(namespace, name string) *corev1.PersistentVolumeClaim
	Volume func(name string) *corev1.PersistentVolume
	Class  func(name string) *storagev1.StorageClass
}

// Attach returns pod, which [PodWithoutClaims] made, with what its claims demand of a node. It
// reads claims as kube-scheduler does:
//
//   - A bound claim goes where its volume can be attached: the volume's node affinity, and the
//     zones in its labels.
//   - An unbound one whose class waits for its first consumer goes where the class can make a
//     volume: its allowedTopologies, or the node that the scheduler has chosen already.
//   - Any other keeps the pod waiting whatever machines there are, and becomes a line of
//     Unmodelled: one that does not exist, is being deleted or is not bound yet, or that needs a
//     volume that its class does not make. So does ReadWriteOncePod, because of other pods.
//
// Each claim counts as one of the resource [AttachLimit] of its CSI driver; a claim that several
// pods of a node share counts for each of them. Not read: the free capacity of a storage system.
func (v Volumes) Attach(pod demand.Pod, claims ...Claim) demand.Pod {
	pod.Volumes, pod.Unmodelled = slices.Clip(pod.Volumes), slices.Clip(pod.Unmodelled)
	pod.Requests.Extended = maps.Clone(pod.Requests.Extended)
	for _, c := range claims {
		nodes, driver, why := v.place(c)
		name := "claim " + c.Name
		if why != "" {
			pod.Unmodelled = append(pod.Unmodelled, name+" "+why)
			continue
		}
		for _, terms := range nodes {
			pod.Volumes = append(pod.Volumes, demand.Volume{Name: name, Nodes: terms})
		}
		if driver != "" {
			if pod.Requests.Extended == nil {
				pod.Requests.Extended = map[string]int64{}
			}
			pod.Requests.Extended[AttachLimit(driver)]++
		}
	}
	return pod
}

// SelectedNode is the annotation of a claim with the Node that the scheduler has chosen for a pod,
// until the volume is made: the pod is not bound before.
const SelectedNode = "volume.kubernetes.io/selected-node"

// bindCompleted is on a claim that has its volume for good.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// place returns what a claim demands of a node, each part of which must hold, and the driver that
// attaches it, or why the pod waits.
func (v Volumes) place(c Claim) (nodes [][]demand.NodeTerm, driver, why string) {
	claim := v.Claim(c.Namespace, c.Name)
	switch {
	case claim == nil:
		return nil, "", "does not exist"
	case c.Owner != "" && !ownedBy(claim, c.Owner):
		return nil, "", "is not the pod's own"
	case claim.DeletionTimestamp != nil:
		return nil, "", "is being deleted"
	case slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod):
		return nil, "", "is for one pod alone: whether another uses it is not known"
	case claim.Spec.VolumeName != "" && !metav1.HasAnnotation(claim.ObjectMeta, bindCompleted):
		return nil, "", "is not bound yet"
	case claim.Spec.VolumeName != "":
		return v.bound(claim)
	default:
		return v.unbound(claim)
	}
}

func ownedBy(claim *corev1.PersistentVolumeClaim, uid string) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && string(owner.UID) == uid
}

func (v Volumes) bound(claim *corev1.PersistentVolumeClaim) (nodes [][]demand.NodeTerm, driver, why string) {
	volume := v.Volume(claim.Spec.VolumeName)
	if volume == nil {
		return nil, "", fmt.Sprintf("has volume %s, which does not exist", claim.Spec.VolumeName)
	}
	if a := volume.Spec.NodeAffinity; a != nil && a.Required != nil {
		nodes = append(nodes, nodeTerms(a.Required.NodeSelectorTerms))
	}
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if value := volume.Labels[key]; value != "" {
			nodes = append(nodes, []demand.NodeTerm{{Labels: []demand.Requirement{{
				Key: strings.Replace(key, "failure-domain.beta", "topology", 1), Operator: demand.In, Values: strings.Split(value, "__"),
			}}}})
		}
	}
	if csi := volume.Spec.CSI; csi != nil {
		driver = csi.Driver
	}
	return nodes, driver, ""
}

func (v Volumes) unbound(claim *corev1.PersistentVolumeClaim) (nodes [][]demand.NodeTerm, driver, why string) {
	name := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if claim.Spec.StorageClassName != nil {
		name = cmp.Or(name, *claim.Spec.StorageClassName)
	}
	if name == "" {
		return nil, "", "has no storage class, and is not bound yet"
	}
	class := v.Class(name)
	const noProvisioner = "kubernetes.io/no-provisioner"
	switch {
	case class == nil:
		return nil, "", fmt.Sprintf("has storage class %s, which does not exist", name)
	case class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return nil, "", "is not bound yet"
	case class.Provisioner == "" || class.Provisioner == noProvisioner:
		return nil, "", fmt.Sprintf("needs a volume that is there already: storage class %s makes none", name)
	}
	if node, chosen := claim.Annotations[SelectedNode]; chosen {
		nodes = append(nodes, []demand.NodeTerm{{Names: []demand.Requirement{{
			Key: metav1.ObjectNameField, Operator: demand.In, Values: []string{node},
		}}}})
	}
	if len(class.AllowedTopologies) > 0 {
		terms := make([]demand.NodeTerm, 0, len(class.AllowedTopologies))
		for _, t := range class.AllowedTopologies {
			var term demand.NodeTerm
			for _, e := range t.MatchLabelExpressions {
				term.Labels = append(term.Labels, demand.Requirement{Key: e.Key, Operator: demand.In, Values: slices.Clone(e.Values)})
			}
			terms = append(terms, term)
		}
		nodes = append(nodes, terms)
	}
	return nodes, class.Provisioner, ""
}

// AttachLimit is the name of the resource of which each volume of a CSI driver takes one.
func AttachLimit(driver string) string { return "attachable-volumes-csi-" + driver }

// Unlimited is how many volumes of a driver a node takes that states no limit.
const Unlimited = math.MaxInt32

// AttachLimits returns how many volumes of each driver a node takes, by the resource
// [AttachLimit]. Nil is a node that states none. A driver that is missing has no limit: give the
// Allocatable of such a node [Unlimited] of each resource that a pod requests.
func AttachLimits(n *storagev1.CSINode) map[string]int64 {
	limits := map[string]int64{}
	if n == nil {
		return limits
	}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[AttachLimit(d.Name)] = int64(*d.Allocatable.Count)
		}
	}
	return limits
}
