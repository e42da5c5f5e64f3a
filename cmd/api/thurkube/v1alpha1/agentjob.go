package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentJob is one run of an agent, or a recurring one if it has a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=aj
// +kubebuilder:printcolumn:name=Schedule,type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name=Suspended,type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Last Run,type=date,JSONPath=`.status.lastRunTime`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 46",message="metadata.name must have at most 46 characters: the names of its children are made of it"
type AgentJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AgentJobSpec `json:"spec"`
	// +optional
	Status AgentJobStatus `json:"status,omitzero"`
}

// AgentJobSpec says what runs, when, and with what.
//
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.all(e, e.name != 'HOME')",message="env must not set HOME: it is /home/agent",fieldPath=".env"
// +kubebuilder:validation:XValidation:rule="!self.persist || !oldSelf.persist || (has(self.storage.className) == has(oldSelf.storage.className) && (!has(self.storage.className) || self.storage.className == oldSelf.storage.className))",message="storage.className cannot be changed: the volume is there; make another AgentJob, or set persist to false first, which deletes the volume",fieldPath=".storage.className"
// +kubebuilder:validation:XValidation:rule="!self.persist || !oldSelf.persist || self.storage.accessModes == oldSelf.storage.accessModes",message="storage.accessModes cannot be changed: the volume is there; make another AgentJob, or set persist to false first, which deletes the volume",fieldPath=".storage.accessModes"
type AgentJobSpec struct {
	// Schedule of a recurring run: cron with five fields, or a macro such as @daily.
	// Absent: one run.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$') || self.matches('^(\\*|\\?|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]*)?(,(\\*|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]*)?)* +(\\*|\\?|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?(,(\\*|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?)* +(\\*|\\?|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?(,(\\*|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?)* +(\\*|\\?|(0?[1-9]|1[0-2]|[a-zA-Z]{3})(-(0?[1-9]|1[0-2]|[a-zA-Z]{3}))?)(/[1-9][0-9]*)?(,(\\*|(0?[1-9]|1[0-2]|[a-zA-Z]{3})(-(0?[1-9]|1[0-2]|[a-zA-Z]{3}))?)(/[1-9][0-9]*)?)* +(\\*|\\?|([0-6]|[a-zA-Z]{3})(-([0-6]|[a-zA-Z]{3}))?)(/[1-9][0-9]*)?(,(\\*|([0-6]|[a-zA-Z]{3})(-([0-6]|[a-zA-Z]{3}))?)(/[1-9][0-9]*)?)*$')`,message="must be a cron schedule with five fields (minute 0-59, hour 0-23, day 1-31, month 1-12, weekday 0-6) or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"
	Schedule string `json:"schedule,omitempty"`
	// Timezone of the schedule, an IANA name.
	// +optional
	// +kubebuilder:default=Etc/UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() != 'local'",message="must be an IANA name such as Europe/Berlin: Local depends on the server"
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	Timezone string `json:"timezone,omitempty"`
	// Suspend starts no more runs. One that runs goes on.
	// +optional
	// +kubebuilder:default=false
	Suspend bool `json:"suspend,omitempty"`
	// OnChange decides about a run under way when what it depends on changes.
	// +optional
	// +kubebuilder:default=Replace
	OnChange OnChange `json:"onChange,omitempty"`

	// RuntimeRef names the AgentRuntime.
	RuntimeRef Name `json:"runtimeRef"`
	// AuthRef names the AgentAuth.
	AuthRef Name `json:"authRef"`
	// RoleRef names the AgentRole.
	RoleRef Name `json:"roleRef"`
	// SkillRef names an AgentSkill.
	// +optional
	SkillRef Name `json:"skillRef,omitempty"`
	// ClusterAccessRef names the ClusterAccess whose rights the agent gets.
	// +optional
	ClusterAccessRef Name `json:"clusterAccessRef,omitempty"`
	// McpServerRefs name McpServers, in the order of the config.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(x, self.exists_one(y, x == y))",message="must not have a name twice"
	// +listType=atomic
	McpServerRefs []Name `json:"mcpServerRefs,omitempty"`
	// RepositoryRefs name Repositories, in the order of the config.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(x, self.exists_one(y, x == y))",message="must not have a name twice"
	// +listType=atomic
	RepositoryRefs []Name `json:"repositoryRefs,omitempty"`

	// Prompt is what the agent is to do.
	// +kubebuilder:validation:MinLength=1
	Prompt string `json:"prompt"`
	// Instructions are the agent's system prompt.
	// +optional
	Instructions string `json:"instructions,omitempty"`
	// Model is the language model.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model,omitempty"`

	// Env are more environment variables. HOME and the runtime's authEnvVar are set by
	// the operator.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`
	// EnvFrom are sources of more environment variables.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Resources of the agent's container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// ImagePullSecrets are the Secrets in the same namespace that the runtime's image is pulled
	// with.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []ImagePullSecret `json:"imagePullSecrets,omitempty"`
	// NodeSelector are the labels that the node of a run has.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are the taints that the node of a run may have.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName names the PriorityClass of the runs. Absent: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// ServiceAccountAnnotations are annotations of the ServiceAccount <name>-runner: what a
	// cloud reads to give the runs an identity of its own.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
	// TimeoutSeconds is how long a run may take.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`

	// Persist keeps a volume over runs, mounted at the runtime's persistPath.
	// +optional
	// +kubebuilder:default=false
	Persist bool `json:"persist,omitempty"`
	// Storage is the volume, if persist is true.
	// +optional
	// +kubebuilder:default={}
	Storage Storage `json:"storage,omitzero"`
	// Access decides where the rights of the ClusterAccess hold. Those in one namespace need
	// no permission beside the ceiling, and make no pods, roles or bindings.
	// +optional
	// +kubebuilder:default=Cluster
	Access AccessScope `json:"access,omitempty"`
	// NetworkPolicy, if set, is that of the job's pods.
	// +optional
	NetworkPolicy *NetworkPolicy `json:"networkPolicy,omitempty"`
}

// ImagePullSecret names a Secret of the type kubernetes.io/dockerconfigjson.
type ImagePullSecret struct {
	// Name of the Secret.
	Name Name `json:"name"`
}

// OnChange decides about a run under way when what it depends on changes.
//
// +kubebuilder:validation:Enum=Replace;Wait;Keep
type OnChange string

// The decisions.
const (
	// Replace ends the run, and starts another once its pods are gone.
	Replace OnChange = "Replace"
	// Wait starts another when the run has ended.
	Wait OnChange = "Wait"
	// Keep starts no other: a run that was started is the only one, until the
	// annotation thurkube.thurbeen.eu/rerun changes.
	Keep OnChange = "Keep"
)

// AccessScope is where rights hold.
//
// +kubebuilder:validation:Enum=Cluster;Namespace
type AccessScope string

// The scopes.
const (
	// ClusterScope is the whole cluster.
	ClusterScope AccessScope = "Cluster"
	// NamespaceScope is the namespace of the job.
	NamespaceScope AccessScope = "Namespace"
)

// Storage is a volume.
type Storage struct {
	// Size of the volume. It can grow, and never shrinks.
	// +optional
	// +kubebuilder:default="1Gi"
	Size resource.Quantity `json:"size,omitzero"`
	// ClassName of the volume. Absent: the cluster's default class.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName *string `json:"className,omitempty"`
	// AccessModes of the volume.
	// +optional
	// +kubebuilder:default={ReadWriteOnce}
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadOnlyMany;ReadWriteMany;ReadWriteOncePod
	// +listType=atomic
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
}

// NetworkPolicy is what the pods of a job may reach. Nothing reaches them.
type NetworkPolicy struct {
	// Egress are rules as those of a NetworkPolicy of Kubernetes. Absent: the pods reach
	// everything. An empty list: they reach nothing.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitzero"`
}

// Phase is a job's state in one word.
type Phase string

// The phases.
const (
	Pending   Phase = "Pending"   // nothing runs yet: see the conditions
	Scheduled Phase = "Scheduled" // the schedule starts runs
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
	Suspended Phase = "Suspended"
)

// AgentJobStatus is what became of a job.
type AgentJobStatus struct {
	// Phase is Pending, Scheduled, Running, Succeeded, Failed or Suspended.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Message explains the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// LastRunTime is when the last run started.
	// +optional
	LastRunTime *metav1.Time `json:"lastRunTime,omitempty"`
	// LastCompletionTime is when the last run ended.
	// +optional
	LastCompletionTime *metav1.Time `json:"lastCompletionTime,omitempty"`
	// LastSuccessfulTime is when a scheduled run last succeeded.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
	// MissedStarts counts the times of the schedule since the last run, if it is late.
	// +optional
	MissedStarts int32 `json:"missedStarts,omitempty"`
	// ConfigHash is that of the rendered config: 16 hexadecimal digits.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// TemplateHash is that of everything else a run depends on: 16 hexadecimal digits.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`
	// LastRun is the last run of a job without a schedule.
	// +optional
	LastRun *Run `json:"lastRun,omitempty"`
	// Rerun is the annotation thurkube.thurbeen.eu/rerun that a job with a schedule has had its
	// last run beside the schedule for.
	// +optional
	Rerun string `json:"rerun,omitempty"`
	// Owned are the objects made for the job.
	// +optional
	// +listType=atomic
	Owned []OwnedObject `json:"owned,omitempty"`
	// Conditions are Ready, Resolved, AccessReady, and Finished, which is true when the last run
	// has ended and no other is due; its reason is the outcome.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OwnedObject names an object made for a job. It is in the job's namespace, if its kind
// has one.
type OwnedObject struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Run is one run of a job.
type Run struct {
	// RunHash is that of the config and of everything else that the run depends on.
	RunHash string `json:"runHash"`
	// Rerun is the annotation thurkube.thurbeen.eu/rerun that the run was started with.
	// +optional
	Rerun string `json:"rerun,omitempty"`
	// Job is the name of the Job.
	Job string `json:"job"`
	// UID is that of the Job.
	// +optional
	UID string `json:"uid,omitempty"`
	// Started is when the Job was started.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// Finished is when it ended.
	// +optional
	Finished *metav1.Time `json:"finished,omitempty"`
	// Outcome is Succeeded, Failed, Replaced for one that another one ended, or Deleted.
	// Empty: it runs.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`
	// ExitCode is that of the agent, if it has ended by itself.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason of a failure: Deadline, OOMKilled, ImagePull, Evicted, Deleted or Error.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Outcome is how a run ended.
type Outcome string

// The outcomes.
const (
	RunSucceeded Outcome = "Succeeded"
	RunFailed    Outcome = "Failed"
	RunReplaced  Outcome = "Replaced"
	RunDeleted   Outcome = "Deleted"
)

// The annotations, labels and the finalizer of the operator.
const (
	// AnnotationRerun, on an AgentJob, starts one more run with each new value; with a schedule,
	// one beside it.
	AnnotationRerun = Group + "/rerun"
	// AnnotationConfigHash and AnnotationRunHash are on the Job, CronJob and pods.
	AnnotationConfigHash = Group + "/config-hash"
	AnnotationRunHash    = Group + "/run-hash"
	// LabelJob, LabelNamespace and LabelOwner, the UID, name the AgentJob on
	// everything made for it.
	LabelJob       = Group + "/agentjob"
	LabelNamespace = Group + "/agentjob-namespace"
	LabelOwner     = Group + "/owner-uid"
	// LabelAllowAccess set to "true" on a Namespace lets its AgentJobs have rights in
	// the whole cluster.
	LabelAllowAccess = Group + "/allow-cluster-access"
	// Finalizer keeps a deleted AgentJob until its rights are gone.
	Finalizer = Group + "/finalizer"
)
