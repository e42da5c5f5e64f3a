package operator

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/userdata"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// tagTemplate is the tag with the hash of what a machine was made from.
const tagTemplate = "template"

// scopeOf returns the scope that marks the machines of the pool.
func (o *operator) scopeOf(p *v1alpha1.NodePool) cloud.Scope {
	return cloud.Scope{Domain: v1alpha1.Group, Cluster: o.config.ClusterName, Pool: p.Name, PoolUID: string(p.UID)}
}

// poolOf returns the pool as package cloud has it, without templates.
func (o *operator) poolOf(p *v1alpha1.NodePool) cloud.Pool {
	spec := p.Spec
	pool := cloud.Pool{
		Scope:            o.scopeOf(p),
		Size:             int(spec.PoolSize),
		MinStandby:       int(spec.MinStandby),
		WarmupTimeout:    spec.PreWarm.Timeout.Duration.Duration,
		TerminateLate:    spec.PreWarm.TimeoutAction == v1alpha1.TimeoutTerminate,
		ControllerStop:   spec.PreWarm.CompletionMode == v1alpha1.ControllerStop,
		BestEffortImages: spec.PreWarm.ImagePullPolicy == v1alpha1.ImagesBestEffort,
		KeepEmpty:        spec.ScaleDown.Enabled != nil && !*spec.ScaleDown.Enabled,
		EmptyTTL:         spec.ScaleDown.EmptyNodeTTL.Duration.Duration,
		DrainTimeout:     spec.ScaleDown.DrainTimeout.Duration.Duration,
		UnreadyTimeout:   spec.UnreadyTimeout.Duration.Duration,
		Deleting:         p.DeletionTimestamp != nil,
	}
	pool.Disruptions, _ = disruptions(p, o.now())
	if d := spec.Disruption.ConsolidateAfter; d != nil {
		pool.ConsolidateAfter = d.Duration.Duration
	}
	if d := spec.MaxNodeRuntime; d != nil {
		pool.MaxRuntime = d.Duration.Duration
	}
	if d := spec.ScaleDown.SurplusStandbyTTL; d != nil {
		pool.SurplusTTL = d.Duration.Duration
	}
	return pool
}

// nodesOf is what the Nodes of the pool have.
func nodesOf(p *v1alpha1.NodePool) nodes.Pool {
	t := p.Spec.Template
	return nodes.Pool{
		Domain: v1alpha1.Group, Name: p.Name, UID: string(p.UID), Labels: t.Labels,
		Taints: toTaints(t.Taints), StartupTaints: toTaints(t.StartupTaints),
		RemovedByOthers: t.StartupTaintRemoval == v1alpha1.RemoveExternally,
		IgnoreNetwork:   t.NetworkReadinessStrategy == v1alpha1.NetworkReadinessNone,
	}
}

func toTaints(taints []v1alpha1.Taint) []corev1.Taint {
	out := make([]corev1.Taint, 0, len(taints))
	for _, t := range taints {
		out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
}

// interval is the time between two looks at a pool at rest.
func interval(p *v1alpha1.NodePool) time.Duration {
	return cmp.Or(p.Spec.ReconciliationInterval.Duration.Duration, 30*time.Second)
}

// recipe is what the machines of a pool are made from: its class with ids, and one
// template for each subnet.
type recipe struct {
	class  *v1alpha1.AWSNodeClass
	config cloud.LaunchConfig // without a subnet
	// hash is the hash of the settings that cannot be changed on a launched machine. A
	// machine with another hash is replaced.
	hash      string
	templates []cloud.Template
	warning   string // for people: nothing that stops launches
}

// newRecipe makes the recipe of a pool from its class, which has been resolved.
func (o *operator) newRecipe(p *v1alpha1.NodePool, class *v1alpha1.AWSNodeClass) (recipe, error) {
	spec, resolved := class.Spec, class.Status
	r := recipe{class: class}
	data, err := o.userData(p, class, o.images(p, class)).Render()
	if err != nil {
		return r, fmt.Errorf("user data: %w", err)
	}
	r.warning = data.Warning
	r.config = cloud.LaunchConfig{
		ImageID: resolved.ResolvedAMI, InstanceType: spec.InstanceType, SecurityGroupIDs: resolved.ResolvedSecurityGroups,
		IAMInstanceProfile: resolved.ResolvedInstanceProfile, UserData: data.Text,
		Metadata: cloud.MetadataOptions{
			HTTPEndpoint:            spec.MetadataOptions.HTTPEndpoint,
			HTTPTokens:              spec.MetadataOptions.HTTPTokens,
			HTTPPutResponseHopLimit: int(spec.MetadataOptions.HTTPPutResponseHopLimit),
			InstanceMetadataTags:    spec.MetadataOptions.InstanceMetadataTags,
		},
	}
	for _, d := range spec.BlockDeviceMappings {
		r.config.BlockDevices = append(r.config.BlockDevices, cloud.BlockDevice{
			DeviceName: d.DeviceName,
			VolumeSize: int(d.VolumeSize),
			VolumeType: d.VolumeType,
			Encrypted:  d.Encrypted,
			Iops:       int(d.Iops),
			Throughput: int(d.Throughput),
		})
	}
	// Labels, taints and images can be given to a machine that exists, tags are for people.
	lasting := r.config
	plain := o.userData(p, class, nil)
	plain.Labels, plain.Taints = nil, nil
	if data, err = plain.Render(); err != nil {
		return r, fmt.Errorf("user data: %w", err)
	}
	lasting.UserData = data.Text
	if r.hash, err = hashOf(lasting); err != nil {
		return r, err
	}
	whole, err := hashOf(r.config)
	if err != nil {
		return r, err
	}
	r.config.Tags = maps.Clone(spec.Tags)
	if r.config.Tags == nil {
		r.config.Tags = map[string]string{}
	}
	r.config.Tags[o.scopeOf(p).Key(tagTemplate)] = r.hash
	for _, s := range resolved.ResolvedSubnets {
		r.templates = append(r.templates, cloud.Template{Name: s.ID, InstanceType: spec.InstanceType, Zone: s.Zone, Hash: whole})
	}
	return r, nil
}

// launchConfig returns the config of a template: of a subnet.
func (r recipe) launchConfig(subnet string) (cloud.LaunchConfig, error) {
	config := r.config
	config.SubnetID, config.Tags = subnet, maps.Clone(r.config.Tags)
	if !slices.ContainsFunc(r.templates, func(t cloud.Template) bool { return t.Name == subnet }) {
		return config, fmt.Errorf("subnet %s is none of class %s", subnet, r.class.Name)
	}
	return config, nil
}

// drifted reports whether a machine was made from something else than the recipe.
func (r recipe) drifted(scope cloud.Scope, i cloud.Instance) bool {
	if len(r.templates) == 0 {
		return false // nothing is known
	}
	hash, ok := i.Tags[scope.Key(tagTemplate)]
	return ok && hash != r.hash ||
		i.SubnetID != "" && !slices.ContainsFunc(r.templates, func(t cloud.Template) bool { return t.Name == i.SubnetID })
}

func hashOf(v any) (string, error) {
	sum, err := diff.Hash(v)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum[:8]), nil
}

// userData is what a machine of the pool does at its first boot.
func (o *operator) userData(p *v1alpha1.NodePool, class *v1alpha1.AWSNodeClass, images []string) userdata.Config {
	pool := nodesOf(p)
	return userdata.Config{
		Bootstrap:   class.Spec.BootstrapTemplate,
		ClusterName: o.config.ClusterName,
		Endpoint:    o.config.ClusterEndpoint,
		CA:          o.config.ClusterCA,
		CIDR:        o.config.ClusterCIDR,
		Labels:      nodeLabels(p, class),
		Taints:      slices.Concat(pool.Taints, toTaints(class.Spec.Kubelet.NodeTaints), pool.Startup()),
		Kubelet:     class.Spec.Kubelet,
		Custom:      class.Spec.CustomUserData,
		Images:      images,
		SelfStop:    p.Spec.PreWarm.CompletionMode != v1alpha1.ControllerStop,
	}
}

// nodeLabels are those that a Node of the pool registers with. The label of the pool is
// not one: the kubelet does not decide whose machine it is.
func nodeLabels(p *v1alpha1.NodePool, class *v1alpha1.AWSNodeClass) map[string]string {
	labels := maps.Clone(class.Spec.Kubelet.NodeLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, p.Spec.Template.Labels)
	return labels
}

// images returns the images that a machine pulls before its first stop: the images of the
// DaemonSets that will run on it, and the images of the spec.
func (o *operator) images(p *v1alpha1.NodePool, class *v1alpha1.AWSNodeClass) []string {
	if class.Spec.BootstrapTemplate == v1alpha1.Bottlerocket {
		return nil
	}
	all := map[string]bool{}
	for _, image := range p.Spec.PreWarm.ImagesToPull {
		all[image] = true
	}
	node := o.siteOf(p, class, "")
	for _, set := range o.cluster.DaemonSets() {
		if len(cloudkube.Daemons(&node, set)) == 0 {
			continue
		}
		for _, containers := range [][]corev1.Container{set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers} {
			for _, c := range containers {
				all[c.Image] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// siteOf is a machine of the pool in a zone, as the scheduler will see it once it runs.
func (o *operator) siteOf(p *v1alpha1.NodePool, class *v1alpha1.AWSNodeClass, zone string) demand.Node {
	labels := nodeLabels(p, class)
	labels[v1alpha1.LabelPool] = p.Name
	labels[corev1.LabelOSStable], labels[corev1.LabelArchStable] = "linux", "amd64"
	if class.Spec.Architecture == "arm64" {
		labels[corev1.LabelArchStable] = "arm64"
	}
	labels[corev1.LabelInstanceTypeStable] = class.Spec.InstanceType
	if zone != "" {
		labels[corev1.LabelTopologyZone] = zone
		labels[corev1.LabelTopologyRegion] = cmp.Or(class.Spec.Region, o.clouds.home())
		for _, label := range o.config.Platform.ZoneLabels {
			labels[label] = zone
		}
	}
	node := demand.Node{Labels: labels}
	for _, t := range slices.Concat(toTaints(p.Spec.Template.Taints), toTaints(class.Spec.Kubelet.NodeTaints)) {
		node.Taints = append(node.Taints, demand.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return node
}

// regionOf returns which of the regions a zone is in. The name of a zone begins with the
// name of its region: eu-west-1a, us-west-2-lax-1a. Empty: in none of them.
func regionOf(zone string, regions []string) string {
	found := ""
	for _, region := range regions {
		if strings.HasPrefix(zone, region) && len(region) > len(found) {
			found = region
		}
	}
	return found
}
