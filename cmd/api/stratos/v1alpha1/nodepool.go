package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePool keeps machines that were booted once, and starts them when pods need them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=np;npool
// +kubebuilder:printcolumn:name=PoolSize,type=integer,JSONPath=`.spec.poolSize`
// +kubebuilder:printcolumn:name=MinStandby,type=integer,JSONPath=`.spec.minStandby`
// +kubebuilder:printcolumn:name=Standby,type=integer,JSONPath=`.status.standby`
// +kubebuilder:printcolumn:name=Running,type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters: it is the value of a label"
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec NodePoolSpec `json:"spec"`
	// +optional
	Status NodePoolStatus `json:"status,omitzero"`
}

// NodePoolSpec says how many machines there are, and how they are used.
//
// +kubebuilder:validation:XValidation:rule="self.minStandby <= self.poolSize",message="minStandby must be at most poolSize",fieldPath=".minStandby"
type NodePoolSpec struct {
	// PoolSize is how many machines the pool may have, whatever they are used for.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	PoolSize int32 `json:"poolSize"`
	// MinStandby is how many stopped machines are kept ready.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinStandby int32 `json:"minStandby"`
	// Weight decides which of the pools that fit a pod is used first: the one with the higher
	// weight. Its standby machines go before launches, and a pool that is full or for which
	// the cloud has no machine is passed over.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
	// Template is what every Node of the pool has.
	Template NodeTemplate `json:"template"`
	// PreWarm is the first boot of a machine.
	// +optional
	// +kubebuilder:default={}
	PreWarm PreWarm `json:"preWarm,omitzero"`
	// ScaleUp decides about starts.
	// +optional
	ScaleUp ScaleUp `json:"scaleUp,omitzero"`
	// ScaleDown decides about stops.
	// +optional
	// +kubebuilder:default={}
	ScaleDown ScaleDown `json:"scaleDown,omitzero"`
	// Disruption decides about drains of good machines that have pods.
	// +optional
	Disruption Disruption `json:"disruption,omitzero"`
	// MaxNodeRuntime is how long a machine may run before it is drained and goes back to
	// standby, as many at a time as disruption.budgets allow. A machine with a pod that has the annotation
	// stratos.sh/do-not-disrupt: "true", karpenter.sh/do-not-disrupt: "true" or
	// cluster-autoscaler.kubernetes.io/safe-to-evict: "false" runs on. Absent: for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	MaxNodeRuntime *Duration `json:"maxNodeRuntime,omitempty"`
	// UnreadyTimeout is how long the Node of a running machine that was ready may be not
	// ready before the machine is drained and terminated, unless it is ready again before
	// that. It costs at most a tenth of the running machines in an hour, or one.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="must be at least 30s"
	UnreadyTimeout Duration `json:"unreadyTimeout,omitzero"`
	// ReconciliationInterval is the time between two looks at the machines of a pool at
	// rest.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s')",message="must be at least 5s"
	ReconciliationInterval Duration `json:"reconciliationInterval,omitzero"`
}

// NodeTemplate is what every Node of a pool has.
type NodeTemplate struct {
	// Labels of the Nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('stratos.sh/'))",message="must not have a key below stratos.sh/: those belong to the operator"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="must have keys that are names of labels, such as team or example.com/team"
	Labels map[string]LabelValue `json:"labels,omitempty"`
	// Taints of the Nodes, from their registration on.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`
	// StartupTaints are more taints that a Node has when it registers, and again
	// whenever its machine is stopped. StartupTaintRemoval says who removes them.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	StartupTaints []Taint `json:"startupTaints,omitempty"`
	// StartupTaintRemoval is who removes the startup taints of a Node that was started:
	// the operator once its network is ready, or another controller.
	// +optional
	// +kubebuilder:default=WhenNetworkReady
	StartupTaintRemoval StartupTaintRemoval `json:"startupTaintRemoval,omitempty"`
	// NetworkReadinessStrategy is Taint to keep pods off a Node by the startup taint
	// stratos.sh/not-ready until its network is ready, or None.
	// +optional
	// +kubebuilder:default=Taint
	NetworkReadinessStrategy NetworkReadinessStrategy `json:"networkReadinessStrategy,omitempty"`
	// NodeClassRef names what the machines are made from.
	NodeClassRef NodeClassRef `json:"nodeClassRef"`
}

// LabelValue is the value of a label. It is a string, with a bound that the server
// needs to check rules about it.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="must be letters, digits, -, _ and ., with a letter or digit at both ends"
type LabelValue = string

// StartupTaintRemoval is who removes startup taints.
//
// +kubebuilder:validation:Enum=WhenNetworkReady;External
type StartupTaintRemoval string

// The ways to remove startup taints.
const (
	RemoveWhenNetworkReady StartupTaintRemoval = "WhenNetworkReady"
	RemoveExternally       StartupTaintRemoval = "External"
)

// NetworkReadinessStrategy is how pods are kept off a Node without a network.
//
// +kubebuilder:validation:Enum=Taint;None
type NetworkReadinessStrategy string

// The strategies.
const (
	NetworkReadinessTaint NetworkReadinessStrategy = "Taint"
	NetworkReadinessNone  NetworkReadinessStrategy = "None"
)

// Taint keeps pods without a toleration off a Node.
//
// +kubebuilder:validation:XValidation:rule="!self.key.startsWith('stratos.sh/')",message="key must not be below stratos.sh/: those belong to the operator"
type Taint struct {
	// Key of the taint, such as dedicated or example.com/team.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Value string `json:"value,omitempty"`
	// Effect on pods that do not tolerate the taint.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// NodeClassRef names an object of a kind that machines are made from.
type NodeClassRef struct {
	// Kind of the object.
	// +kubebuilder:validation:Enum=AWSNodeClass
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// PreWarm is the first boot of a machine: it joins the cluster, pulls images, and is
// stopped.
type PreWarm struct {
	// Timeout is the time from the launch to the stop.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="must be at least 30s"
	Timeout Duration `json:"timeout,omitzero"`
	// TimeoutAction is what happens to a machine that is over its time: stop keeps it as
	// the last choice if it has joined, terminate does not.
	// +optional
	// +kubebuilder:default=stop
	TimeoutAction TimeoutAction `json:"timeoutAction,omitempty"`
	// CompletionMode is SelfStop for a machine that stops itself when it has pulled its
	// images, or ControllerStop for one that the operator stops.
	// +optional
	// +kubebuilder:default=SelfStop
	CompletionMode CompletionMode `json:"completionMode,omitempty"`
	// ImagesToPull are images that every machine has before its first stop, beside those
	// of the DaemonSets that run on it.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`
	// +listType=atomic
	ImagesToPull []string `json:"imagesToPull,omitempty"`
	// ImagePullPolicy is Required if a machine that lacks an image is no good standby
	// machine, or BestEffort.
	// +optional
	// +kubebuilder:default=Required
	ImagePullPolicy ImagePullPolicy `json:"imagePullPolicy,omitempty"`
}

// TimeoutAction is what happens to a machine that is over the time of its warm-up.
//
// +kubebuilder:validation:Enum=stop;terminate
type TimeoutAction string

// The actions.
const (
	TimeoutStop      TimeoutAction = "stop"
	TimeoutTerminate TimeoutAction = "terminate"
)

// CompletionMode is who stops a machine after its warm-up.
//
// +kubebuilder:validation:Enum=SelfStop;ControllerStop
type CompletionMode string

// The modes.
const (
	SelfStop       CompletionMode = "SelfStop"
	ControllerStop CompletionMode = "ControllerStop"
)

// ImagePullPolicy is what an image is worth that could not be pulled.
//
// +kubebuilder:validation:Enum=Required;BestEffort
type ImagePullPolicy string

// The policies.
const (
	ImagesRequired   ImagePullPolicy = "Required"
	ImagesBestEffort ImagePullPolicy = "BestEffort"
)

// ScaleUp decides about starts.
type ScaleUp struct {
	// DefaultPodResources are what a pod without requests is taken to need. Absent: a
	// machine of its own.
	// +optional
	DefaultPodResources DefaultPodResources `json:"defaultPodResources,omitzero"`
}

// DefaultPodResources are what a pod without requests is taken to need.
type DefaultPodResources struct {
	// Requests by the name of the resource, such as cpu and memory.
	// +optional
	Requests PodRequests `json:"requests,omitempty"`
}

// PodRequests are amounts by the name of the resource.
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == int ? int(self[k]) >= 0 : !string(self[k]).startsWith('-'))",message="must not be negative"
type PodRequests map[corev1.ResourceName]resource.Quantity

// ScaleDown decides about stops.
type ScaleDown struct {
	// Enabled stops machines that are empty.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// EmptyNodeTTL is how long a machine runs without pods, other than those of
	// DaemonSets, before it is stopped.
	// +optional
	// +kubebuilder:default="5m"
	EmptyNodeTTL Duration `json:"emptyNodeTTL,omitzero"`
	// DrainTimeout is how long a drain may take. A machine that still has pods then is
	// opened again. One that goes for good (it is not ready, the cloud announces its end, or
	// its pool is deleted) is terminated, whatever is left of the grace of its pods.
	// +optional
	// +kubebuilder:default="5m"
	DrainTimeout Duration `json:"drainTimeout,omitzero"`
	// SurplusStandbyTTL is how long standby machines above minStandby are kept. Absent:
	// for ever.
	// +optional
	SurplusStandbyTTL *Duration `json:"surplusStandbyTTL,omitempty"`
}

// The conditions of a NodePool.
const (
	// ConditionReady has the reasons PoolReady, InsufficientStandby and Degraded.
	ConditionReady = "Ready"
	// ConditionDegraded has the reasons ValidationFailed, NodeClassNotReady,
	// NodeClassNotFound and CloudProviderError, and what holds the pool back: ListFailed,
	// ShortList, NodesNotReady, NodeMissing, WarmupFailing, Throttled,
	// InsufficientCapacity, QuotaExceeded, LaunchRejected and LaunchFailed.
	ConditionDegraded = "Degraded"
	// ConditionFull has the reasons PoolFull, if every machine that the pool may have is in
	// use or cannot be started, RoomLeft, and why no machine is launched while none is on standby. It is
	// Unknown with the reason ClusterNameChanged. Pods that need one more wait, or go to another pool.
	ConditionFull                  = "Full"
	ConditionScaleUpInProgress     = "ScaleUpInProgress"
	ConditionScaleDownInProgress   = "ScaleDownInProgress"
	ConditionImagePrePullSupported = "ImagePrePullSupported"
)
