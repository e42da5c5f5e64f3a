package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AWSNodeClass is what machines of EC2 are made from.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=awsnodeclasses,shortName=awsnc
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.spec.instanceType`
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=`.status.resolvedAMI`
// +kubebuilder:printcolumn:name=Pools,type=integer,JSONPath=`.status.nodePoolCount`
// +kubebuilder:printcolumn:name=Valid,type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type AWSNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AWSNodeClassSpec `json:"spec"`
	// +optional
	Status AWSNodeClassStatus `json:"status,omitzero"`
}

// AWSNodeClassSpec describes the machines.
//
// +kubebuilder:validation:XValidation:rule="has(self.subnetIds) != has(self.subnetSelector)",message="exactly one of subnetIds and subnetSelector must be set"
// +kubebuilder:validation:XValidation:rule="has(self.securityGroupIds) != has(self.securityGroupSelector)",message="exactly one of securityGroupIds and securityGroupSelector must be set"
// +kubebuilder:validation:XValidation:rule="has(self.iamInstanceProfile) != has(self.role)",message="exactly one of iamInstanceProfile and role must be set"
// +kubebuilder:validation:XValidation:rule="self.bootstrapTemplate != 'Bottlerocket' || !has(self.customUserData) || !self.customUserData.startsWith('#!')",message="customUserData of Bottlerocket must be TOML, not a script",fieldPath=".customUserData"
// +kubebuilder:validation:XValidation:rule="self.bootstrapTemplate != 'Bottlerocket' || !has(self.kubelet) || !has(self.kubelet.extraArgs)",message="kubelet.extraArgs must not be set for Bottlerocket, whose kubelet takes no flags: set settings.kubernetes in customUserData",fieldPath=".kubelet"
type AWSNodeClassSpec struct {
	// BootstrapTemplate is how the image joins the cluster.
	BootstrapTemplate BootstrapTemplate `json:"bootstrapTemplate"`
	// Region of the machines. Absent: that of the operator.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`
	Region string `json:"region,omitempty"`
	// InstanceType of the machines, such as m5.xlarge.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+\.[a-z0-9-]+$`
	InstanceType string `json:"instanceType"`
	// Architecture of the machines.
	// +kubebuilder:validation:Enum=x86_64;arm64
	Architecture string `json:"architecture"`
	// AMISelector selects the image, the newest that fits. Absent: the newest of
	// Amazon for the template, the architecture and the version of the cluster.
	// +optional
	AMISelector *AMISelector `json:"amiSelector,omitempty"`

	// SubnetIDs are where the machines are, one zone each.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^subnet-[0-9a-z]+$`
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	SubnetIDs []string `json:"subnetIds,omitempty"`
	// SubnetSelector are tags that all must match; the value * matches any.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=50
	SubnetSelector map[string]string `json:"subnetSelector,omitempty"`
	// SecurityGroupIDs are those of the machines.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^sg-[0-9a-z]+$`
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	SecurityGroupIDs []string `json:"securityGroupIds,omitempty"`
	// SecurityGroupSelector are tags that all must match; the value * matches any.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=50
	SecurityGroupSelector map[string]string `json:"securityGroupSelector,omitempty"`
	// IAMInstanceProfile is the name or the ARN of a profile.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	IAMInstanceProfile string `json:"iamInstanceProfile,omitempty"`
	// Role is the name of a role, for which the operator makes a profile.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+=,.@_-]+$`
	Role string `json:"role,omitempty"`

	// MetadataOptions bound the machine's access to its own metadata.
	// +optional
	// +kubebuilder:default={}
	MetadataOptions MetadataOptions `json:"metadataOptions,omitzero"`
	// Kubelet are settings of the kubelet.
	// +optional
	Kubelet Kubelet `json:"kubelet,omitzero"`
	// CustomUserData runs before the machine joins: a script, or TOML that is merged for
	// Bottlerocket.
	// +optional
	// +kubebuilder:validation:MaxLength=12288
	CustomUserData string `json:"customUserData,omitempty"`
	// Tags of the machines and their volumes. Those of the operator win.
	// +optional
	// +kubebuilder:validation:MaxProperties=40
	Tags map[string]string `json:"tags,omitempty"`
	// BlockDeviceMappings are the volumes of a machine.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=deviceName
	BlockDeviceMappings []BlockDevice `json:"blockDeviceMappings,omitempty"`
}

// BootstrapTemplate is how an image joins a cluster.
//
// +kubebuilder:validation:Enum=AL2023;AL2;Bottlerocket
type BootstrapTemplate string

// The templates.
const (
	AL2023       BootstrapTemplate = "AL2023"
	AL2          BootstrapTemplate = "AL2"
	Bottlerocket BootstrapTemplate = "Bottlerocket"
)

// AMISelector selects images by all that is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) != (has(self.tags) || has(self.name))",message="either id must be set, or at least one of tags and name"
type AMISelector struct {
	// ID of the image, for an operator that may not look for images.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^ami-[0-9a-z]+$`
	ID string `json:"id,omitempty"`
	// Tags that all must match; the value * matches any.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=50
	Tags map[string]string `json:"tags,omitempty"`
	// Name may have the wildcards * and ?.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`
	// Owner is an account, self or amazon. Absent: self.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{12}|self|amazon|aws-marketplace)$`
	Owner string `json:"owner,omitempty"`
}

// MetadataOptions bound a machine's access to its own metadata.
type MetadataOptions struct {
	// HTTPEndpoint is whether there is a metadata service.
	// +optional
	// +kubebuilder:default=enabled
	// +kubebuilder:validation:Enum=enabled;disabled
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// HTTPTokens is required if the service answers to requests with a session token only.
	// +optional
	// +kubebuilder:default=required
	// +kubebuilder:validation:Enum=required;optional
	HTTPTokens string `json:"httpTokens,omitempty"`
	// HTTPPutResponseHopLimit is how many network hops away a session token may be used: 2
	// reaches pods.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	HTTPPutResponseHopLimit int32 `json:"httpPutResponseHopLimit,omitempty"`
	// InstanceMetadataTags is whether the metadata has the tags of the machine. Absent:
	// what the account says.
	// +optional
	// +kubebuilder:validation:Enum=enabled;disabled
	InstanceMetadataTags string `json:"instanceMetadataTags,omitempty"`
}

// Kubelet are settings of the kubelet.
type Kubelet struct {
	// MaxPods of a Node. Absent: what the image decides.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxPods *int32 `json:"maxPods,omitempty"`
	// NodeLabels are more labels that the kubelet registers with.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('stratos.sh/'))",message="must not have a key below stratos.sh/: those belong to the operator"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="must have keys that are names of labels, such as team or example.com/team"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(kubernetes|k8s)[.]io/') || k.matches('^([^/]*[.])?(node|kubelet)[.]kubernetes[.]io/') || k in ['kubernetes.io/hostname', 'kubernetes.io/arch', 'kubernetes.io/os', 'topology.kubernetes.io/region', 'topology.kubernetes.io/zone'])",message="must not have a key below kubernetes.io or k8s.io, other than node.kubernetes.io and kubelet.kubernetes.io: no kubelet may register with those; set them in template.labels of the NodePool"
	NodeLabels map[string]LabelValue `json:"nodeLabels,omitempty"`
	// NodeTaints are more taints that the kubelet registers with.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	NodeTaints []Taint `json:"nodeTaints,omitempty"`
	// ExtraArgs are flags of the kubelet, without their dashes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-z][a-z0-9-]*$'))",message="must have names of flags without dashes before them"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k in ['node-labels', 'register-with-taints', 'max-pods', 'kubeconfig', 'bootstrap-kubeconfig', 'config', 'provider-id', 'hostname-override', 'healthz-port', 'healthz-bind-address'])",message="must not have node-labels, register-with-taints, max-pods (set nodeLabels, nodeTaints, maxPods instead), nor kubeconfig, bootstrap-kubeconfig, config, provider-id, hostname-override, healthz-port or healthz-bind-address, which the operator relies on"
	ExtraArgs map[string]FlagValue `json:"extraArgs,omitempty"`
}

// FlagValue is the value of a flag: a string of printable ASCII without spaces and quotes.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^[!#-&(-~]*$')",message="must be printable ASCII without spaces and quotes"
type FlagValue = string

// BlockDevice is a volume of a machine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.iops) || (has(self.volumeType) && self.volumeType in ['gp3', 'io1', 'io2'])",message="iops needs volumeType gp3, io1 or io2",fieldPath=".iops"
// +kubebuilder:validation:XValidation:rule="has(self.iops) || !has(self.volumeType) || !(self.volumeType in ['io1', 'io2'])",message="volumeType io1 and io2 need iops",fieldPath=".iops"
// +kubebuilder:validation:XValidation:rule="!has(self.throughput) || (has(self.volumeType) && self.volumeType == 'gp3')",message="throughput needs volumeType gp3",fieldPath=".throughput"
type BlockDevice struct {
	// DeviceName in the image, such as /dev/xvda.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	DeviceName string `json:"deviceName"`
	// VolumeSize in GiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	VolumeSize int32 `json:"volumeSize"`
	// VolumeType of EBS. Absent: what EC2 takes.
	// +optional
	// +kubebuilder:validation:Enum=gp2;gp3;io1;io2;st1;sc1;standard
	VolumeType string `json:"volumeType,omitempty"`
	// Encrypted is whether the volume is, with the account's key.
	// +optional
	Encrypted bool `json:"encrypted,omitempty"`
	// Iops of the volume. Absent: what EC2 takes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Iops int32 `json:"iops,omitempty"`
	// Throughput in MiB/s. Absent: what EC2 takes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Throughput int32 `json:"throughput,omitempty"`
}

// AWSNodeClassStatus is what the class was resolved to.
type AWSNodeClassStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NodePoolCount is how many pools use the class.
	// +optional
	NodePoolCount int32 `json:"nodePoolCount"`
	// ResolvedAMI is the id of the image.
	// +optional
	ResolvedAMI string `json:"resolvedAMI,omitempty"`
	// ResolvedSubnets are those that machines are launched into.
	// +optional
	// +listType=map
	// +listMapKey=id
	ResolvedSubnets []ResolvedSubnet `json:"resolvedSubnets,omitempty"`
	// ResolvedSecurityGroups are the ids of the security groups.
	// +optional
	// +listType=set
	ResolvedSecurityGroups []string `json:"resolvedSecurityGroups,omitempty"`
	// ResolvedInstanceProfile is the name or the ARN of the profile.
	// +optional
	ResolvedInstanceProfile string `json:"resolvedInstanceProfile,omitempty"`
	// Conditions are Valid, InUse, AMIReady, SubnetsReady, SecurityGroupsReady and
	// InstanceProfileReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ResolvedSubnet is a subnet and its zone. The zone is unknown if subnets are named by
// id and the operator may not look them up.
type ResolvedSubnet struct {
	// ID of the subnet.
	ID string `json:"id"`
	// Zone of the subnet.
	// +optional
	Zone string `json:"zone,omitempty"`
}

// The conditions of an AWSNodeClass.
const (
	ConditionValid                = "Valid"
	ConditionInUse                = "InUse"
	ConditionAMIReady             = "AMIReady"
	ConditionSubnetsReady         = "SubnetsReady"
	ConditionSecurityGroupsReady  = "SecurityGroupsReady"
	ConditionInstanceProfileReady = "InstanceProfileReady"
)
