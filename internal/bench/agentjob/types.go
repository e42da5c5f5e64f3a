package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds as the peer has them: with the fields that it reads and writes.

func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "thurkube.thurbeen.eu", Version: "v1alpha1"}
}

type agentJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   agentJobSpec   `json:"spec"`
	Status agentJobStatus `json:"status,omitzero"`
}

type agentJobSpec struct {
	Schedule       string `json:"schedule,omitempty"`
	Timezone       string `json:"timezone,omitempty"`
	Suspend        bool   `json:"suspend,omitempty"`
	RuntimeRef     string `json:"runtimeRef"`
	AuthRef        string `json:"authRef"`
	RoleRef        string `json:"roleRef"`
	Prompt         string `json:"prompt"`
	Instructions   string `json:"instructions,omitempty"`
	Model          string `json:"model,omitempty"`
	TimeoutSeconds int64  `json:"timeoutSeconds,omitempty"`
}

type agentJobStatus struct {
	Phase              string             `json:"phase,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ConfigHash         string             `json:"configHash,omitempty"`
	TemplateHash       string             `json:"templateHash,omitempty"`
	Owned              []ownedObject      `json:"owned,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type ownedObject struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func (j *agentJob) DeepCopyObject() runtime.Object {
	out := *j
	j.DeepCopyInto(&out.ObjectMeta)
	out.Status.Owned = slices.Clone(j.Status.Owned)
	out.Status.Conditions = slices.Clone(j.Status.Conditions)
	return &out
}

type agentRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Image       string   `json:"image"`
		Command     []string `json:"command,omitempty"`
		AuthEnvVar  string   `json:"authEnvVar"`
		ConfigPath  string   `json:"configPath"`
		PersistPath string   `json:"persistPath"`
	} `json:"spec"`
}

func (r *agentRuntime) DeepCopyObject() runtime.Object {
	out := *r
	r.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Command = slices.Clone(r.Spec.Command)
	return &out
}

type agentAuth struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		SecretRef struct {
			Name string `json:"name"`
			Key  string `json:"key"`
		} `json:"secretRef"`
	} `json:"spec"`
}

func (a *agentAuth) DeepCopyObject() runtime.Object {
	out := *a
	a.DeepCopyInto(&out.ObjectMeta)
	return &out
}

type agentRole struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		AllowedTools []string `json:"allowedTools"`
	} `json:"spec"`
}

func (r *agentRole) DeepCopyObject() runtime.Object {
	out := *r
	r.DeepCopyInto(&out.ObjectMeta)
	out.Spec.AllowedTools = slices.Clone(r.Spec.AllowedTools)
	return &out
}

// list is a list of one of the kinds.
type list[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

// agentJobs and the others are what the cache decodes lists into.
type (
	agentJobs     struct{ list[agentJob] }
	agentRuntimes struct{ list[agentRuntime] }
	agentAuths    struct{ list[agentAuth] }
	agentRoles    struct{ list[agentRole] }
)

func (l *agentJobs) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = copied[agentJob](l.Items)
	return &out
}

func (l *agentRuntimes) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = copied[agentRuntime](l.Items)
	return &out
}

func (l *agentAuths) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = copied[agentAuth](l.Items)
	return &out
}

func (l *agentRoles) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = copied[agentRole](l.Items)
	return &out
}

func copied[E any, T interface {
	*E
	runtime.Object
}](items []E) []E {
	out := make([]E, len(items))
	for i := range items {
		o, _ := T(&items[i]).DeepCopyObject().(T) // it is of that type
		out[i] = *o
	}
	return out
}

// addKinds makes a scheme know them.
func addKinds(scheme *runtime.Scheme) {
	for kind, types := range map[string][2]runtime.Object{
		"AgentJob": {&agentJob{}, &agentJobs{}}, "AgentRuntime": {&agentRuntime{}, &agentRuntimes{}},
		"AgentAuth": {&agentAuth{}, &agentAuths{}}, "AgentRole": {&agentRole{}, &agentRoles{}},
	} {
		scheme.AddKnownTypeWithName(groupVersion().WithKind(kind), types[0])
		scheme.AddKnownTypeWithName(groupVersion().WithKind(kind+"List"), types[1])
	}
	metav1.AddToGroupVersion(scheme, groupVersion())
}

// labelsOf are those of everything made for a job.
func labelsOf(job *agentJob) map[string]string {
	return map[string]string{
		"app.kubernetes.io/managed-by": peerName, groupVersion().Group + "/agentjob": job.Name,
		groupVersion().Group + "/agentjob-namespace": job.Namespace, groupVersion().Group + "/owner-uid": string(job.UID),
	}
}
