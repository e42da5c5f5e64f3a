package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApplicationStatus is how far the operator is.
type ApplicationStatus struct {
	// Phase is the state in a word.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// URL of the app.
	// +optional
	URL string `json:"url,omitempty"`
	// Host is the one that belongs to the object: no other has it. Empty: none.
	// +optional
	Host string `json:"host,omitempty"`
	// ObservedGeneration is the generation of the spec that the rest was found with.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions by type. Ready sums the others up.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.type in ['Ready','DatabaseReady','StorageReady','AuthReady','MigrationsReady','RedisReady','SearchReady','DeploymentReady','IngressReady','NamespaceReady'])",message="must have types of this kind alone: Ready, DatabaseReady, StorageReady, AuthReady, MigrationsReady, RedisReady, SearchReady, DeploymentReady, IngressReady, NamespaceReady"
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// External is everything outside of the cluster that was made, or is about to be.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=id
	External []External `json:"external,omitempty"`
	// Migrations is which migrations have run.
	// +optional
	Migrations MigrationsStatus `json:"migrations,omitzero"`
}

// MigrationsStatus is which migrations have run in the schema. A release is a digest of an image
// and the settings of its migrations.
type MigrationsStatus struct {
	// Done are the releases whose migrations have succeeded, the latest last.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Done []string `json:"done,omitempty"`
	// Failed is the release whose migrations have failed. Empty: none.
	// +optional
	Failed string `json:"failed,omitempty"`
	// Image that was rolled out last. The Deployment keeps it until the migrations of another
	// have succeeded.
	// +optional
	Image Image `json:"image,omitempty"`
	// Asked is a digest of the value of the annotation platform.internal/migrate that the
	// last of them was run for.
	// +optional
	Asked string `json:"asked,omitempty"`
}

// Phase is the state of an object in a word.
//
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Failed;Terminating
type Phase string

// The phases.
const (
	// Pending: the database, the storage and the realm are being made.
	Pending Phase = "Pending"
	// Provisioning: the workload is being made, or its pods are not ready.
	Provisioning Phase = "Provisioning"
	// Running: the pods are ready.
	Running Phase = "Running"
	// Failed: a step used up its retries, or is refused for good. The condition has the
	// reason.
	Failed Phase = "Failed"
	// Terminating: all that was made is being removed.
	Terminating Phase = "Terminating"
)

// The types of conditions. They are the values that the definitions allow.
const (
	ConditionReady      = "Ready"
	ConditionDatabase   = "DatabaseReady"
	ConditionStorage    = "StorageReady"
	ConditionAuth       = "AuthReady"
	ConditionMigrations = "MigrationsReady"
	ConditionRedis      = "RedisReady"
	ConditionSearch     = "SearchReady"
	ConditionDeployment = "DeploymentReady"
	ConditionIngress    = "IngressReady"
	// ConditionNamespace is of a PreviewEnvironment alone.
	ConditionNamespace = "NamespaceReady"
)

// ConditionTypes returns all of them, as the definitions allow them.
func ConditionTypes() []string {
	return []string{
		ConditionReady, ConditionDatabase, ConditionStorage, ConditionAuth, ConditionMigrations, ConditionRedis,
		ConditionSearch, ConditionDeployment, ConditionIngress, ConditionNamespace,
	}
}

// External is something outside of the cluster.
type External struct {
	// Kind of it: Schema, Role, Bucket, Realm or Client.
	Kind ExternalKind `json:"kind"`
	// ID is its name there.
	// +kubebuilder:validation:MaxLength=512
	ID string `json:"id"`
	// Policy is what becomes of it when it is no longer wanted.
	// +optional
	Policy DeletionPolicy `json:"policy,omitempty"`
	// Made is whether it was seen complete. Before, it may exist in part.
	// +optional
	Made bool `json:"made,omitempty"`
}

// ExternalKind is the kind of something outside of the cluster.
//
// +kubebuilder:validation:Enum=Schema;Role;Bucket;Realm;Client
type ExternalKind string

// The kinds outside of the cluster.
const (
	KindSchema ExternalKind = "Schema"
	KindRole   ExternalKind = "Role"
	KindBucket ExternalKind = "Bucket"
	KindRealm  ExternalKind = "Realm"
	KindClient ExternalKind = "Client"
)
