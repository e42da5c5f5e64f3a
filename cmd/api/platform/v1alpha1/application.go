package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Application is a web app with its database schema, buckets, login realm, Deployment,
// Services, Ingresses and autoscaler.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=app;apps
// +kubebuilder:printcolumn:name=Framework,type=string,JSONPath=`.spec.framework`
// +kubebuilder:printcolumn:name=Environment,type=string,JSONPath=`.spec.environment`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must have at most 63 characters, be a-z, 0-9 and -, begin with a letter and not end with -: names of the database, the buckets and the host are made of it"
type Application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ApplicationSpec `json:"spec"`
	// +optional
	Status ApplicationStatus `json:"status,omitzero"`
}

// ApplicationSpec says what the app is made of.
type ApplicationSpec struct {
	// Repository is where the source is. It is recorded as an annotation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._~:/@+-]*$')",message="must be the address of a repository such as github.com/team/app"
	Repository string `json:"repository"`
	// Branch of the source. It is recorded as an annotation.
	// +optional
	// +kubebuilder:default=main
	Branch Branch `json:"branch,omitempty"`
	// Framework that the app is built with. It is recorded as a label.
	Framework Framework `json:"framework"`
	// Environment that this is. It cannot be changed: all names outside of the cluster
	// are made of it.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another Application"
	Environment Environment `json:"environment"`
	// ImageRef is the image of the app. Without one there is no workload.
	// +optional
	ImageRef Image `json:"imageRef,omitempty"`
	// ImagePullSecrets are the Secrets in the same namespace that the image is pulled with.
	// Previews run without them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []ImagePullSecret `json:"imagePullSecrets,omitempty"`
	// Command replaces the image's entrypoint. Absent: the image's.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Port that the app listens on.
	// +optional
	// +kubebuilder:default=3000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="self != 3001",message="must not be 3001, which the REST API of the database has"
	Port int32 `json:"port,omitempty"`
	// HealthPath is what the probes ask for. It answers 200 when the app is ready.
	// +optional
	// +kubebuilder:default=/healthz
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^\s]*$`
	HealthPath string `json:"healthPath,omitempty"`
	// Resources of the app's container. What is absent of CPU and memory is 100m of at most 1,
	// and 256Mi of at most 512Mi. Claims of devices are not supported.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || self.claims.size() == 0",message="must be absent: claims of devices are not supported",fieldPath=".claims"
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// EnvVars are more variables of the app's container.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	EnvVars []EnvVar `json:"envVars,omitempty"`
	// Database is a PostgreSQL schema with its roles, and a REST API for it.
	// +optional
	// +kubebuilder:default={}
	Database Database `json:"database,omitzero"`
	// Storage is S3 buckets.
	// +optional
	// +kubebuilder:default={}
	Storage Storage `json:"storage,omitzero"`
	// Auth is a Keycloak realm.
	// +optional
	// +kubebuilder:default={}
	Auth Auth `json:"auth,omitzero"`
	// Redis gives the app the variables of the managed Redis.
	// +optional
	// +kubebuilder:default={}
	Redis Managed `json:"redis,omitzero"`
	// Search gives the app the variables of the managed OpenSearch.
	// +optional
	// +kubebuilder:default={}
	Search Managed `json:"search,omitzero"`
	// Scaling bounds the autoscaler.
	// +optional
	// +kubebuilder:default={min: 2, max: 20, targetCPU: 70}
	Scaling Scaling `json:"scaling,omitzero"`
	// Domain is the host of the app, below a domain that the operator allows. Absent: the
	// name, the environment unless it is production, and the operator's base domain. A host
	// belongs to the first Application that has it; for any other the condition
	// IngressReady has the reason HostTaken.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$')",message="must be a host name in lower case such as app.example.com"
	Domain string `json:"domain,omitempty"`
	// CORS says which other origins may use the app's buckets and its realm.
	// +optional
	// +kubebuilder:default={}
	CORS CORS `json:"cors,omitzero"`
	// Network says what may connect to the app beside the ingress controller.
	// +optional
	Network Network `json:"network,omitzero"`
	// Previews says what copies of the app for pull requests may have of it.
	// +optional
	Previews Previews `json:"previews,omitzero"`
}

// Network says what may connect to the app's pods. The ingress controller always may.
type Network struct {
	// From are further sources. Absent: none.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	From []Peer `json:"from,omitempty"`
}

// Peer is pods that may connect to an app.
type Peer struct {
	// Namespace of the pods. Absent: that of the Application.
	// +optional
	Namespace Namespace `json:"namespace,omitempty"`
	// Application whose pods they are. Absent: all pods of the namespace.
	// +optional
	Application Name `json:"application,omitempty"`
}

// Namespace is the name of a namespace.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace: a-z, 0-9 and -, with a letter or digit at both ends"
type Namespace string

// Previews says what a PreviewEnvironment may have of its Application. The author of a
// preview chooses the image that runs in it.
type Previews struct {
	// Secrets lets previews have the values of variables that come from Secrets. Without it
	// those variables are left out, and the condition DeploymentReady names them.
	// +optional
	// +kubebuilder:default=false
	Secrets bool `json:"secrets,omitempty"`
	// Team are those that may look at what is in the namespaces of previews: pods with
	// their logs, workloads, Events, and no Secrets. Absent: the ServiceAccounts of the
	// Application's namespace.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Team []Subject `json:"team,omitempty"`
}

// Subject is a group, a person or a ServiceAccount.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'ServiceAccount' || !has(self.namespace)",message="namespace: must be absent unless kind is ServiceAccount"
type Subject struct {
	// Kind of it: Group, User or ServiceAccount.
	// +kubebuilder:validation:Enum=Group;User;ServiceAccount
	Kind string `json:"kind"`
	// Name of it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of a ServiceAccount. Absent: that of the Application.
	// +optional
	Namespace Namespace `json:"namespace,omitempty"`
}

// Framework is what an app is built with.
//
// +kubebuilder:validation:Enum=nextjs;rails;static;docker
type Framework string

// Database is a PostgreSQL schema with a role for the app and one for anonymous readers.
//
// +kubebuilder:validation:XValidation:rule="has(self.schemaName) == has(oldSelf.schemaName) && (!has(self.schemaName) || self.schemaName == oldSelf.schemaName)",message="schemaName cannot be changed: the data are in the schema; make another Application"
type Database struct {
	// Enabled makes the schema. When it becomes false, deletionPolicy decides.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// SchemaName stands in the place of the Application's name in the names of the schema
	// and its roles, whose hyphens become underscores. Absent: the name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([a-z0-9_-]*[a-z0-9])?$')",message="must be a-z, 0-9, _ and -, begin with a letter and end with a letter or digit"
	SchemaName string `json:"schemaName,omitempty"`
	// Migrations run before an image is rolled out. Their path and engine are in the Secret,
	// too: DB_MIGRATIONS_PATH and DB_MIGRATIONS_ENGINE.
	// +optional
	// +kubebuilder:default={}
	Migrations Migrations `json:"migrations,omitzero"`
	// AnonRead lets anonymous readers select from the tables that the app makes.
	// +optional
	// +kubebuilder:default=true
	AnonRead bool `json:"anonRead"`
	// DeletionPolicy is what becomes of the schema and its roles.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// Migrations say how the schema's tables are made: by a Job that runs once for each image with
// these settings, with the variables, the resources and the ServiceAccount of the app. Until it
// has succeeded, the Deployment stays as it is. A Job that fails is not repeated: the condition
// MigrationsReady says why it failed, and another image, other settings, or another value of the
// annotation platform.internal/migrate run one again. Two never run at once. A preview, which has
// a schema of its own, runs the migrations of its image.
//
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'raw' || has(self.command)",message="is required with engine raw: an image says nowhere what runs plain SQL",fieldPath=".command"
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'prisma' || has(self.command) || !has(self.path) || !self.path.matches('^[./]+$')",message="must be a folder below the working directory with engine prisma: the file schema.prisma is beside it",fieldPath=".path"
type Migrations struct {
	// Path of the migrations, below the working directory of the image.
	// +optional
	// +kubebuilder:default=./migrations
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._/-]+$') && !self.startsWith('/') && !self.split('/').exists(p, p == '..')",message="must be a relative path without .., of letters, digits and ._/-"
	Path string `json:"path,omitempty"`
	// Engine that runs the migrations, as it is installed in the image. With prisma that is
	// "npx --no-install prisma migrate deploy", with the file schema.prisma beside the path;
	// DATABASE_URL names the schema then, too. With knex it is "npx --no-install knex
	// migrate:latest --migrations-directory" and the path; a knexfile says where the database
	// is. With raw it is the command. Absent: none, unless there is a command.
	// +optional
	Engine MigrationEngine `json:"engine,omitempty"`
	// Command runs the migrations, in the place of the engine's. It has the variables of the
	// app, and ends with 0 if all went well.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Command []string `json:"command,omitempty"`
}

// MigrationEngine is what runs migrations.
//
// +kubebuilder:validation:Enum=prisma;knex;raw
type MigrationEngine string

// The engines.
const (
	Prisma MigrationEngine = "prisma"
	Knex   MigrationEngine = "knex"
	Raw    MigrationEngine = "raw"
)

// Storage is a number of S3 buckets.
type Storage struct {
	// Enabled makes the buckets. When it becomes false, deletionPolicy decides.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// Buckets by name.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Buckets []Bucket `json:"buckets,omitempty"`
	// RoleARN is the IAM role of the app's pods.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$')",message="must be the ARN of an IAM role such as arn:aws:iam::123456789012:role/app"
	RoleARN string `json:"roleArn,omitempty"`
	// DeletionPolicy is what becomes of a bucket with all it holds.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// Bucket is one S3 bucket.
type Bucket struct {
	// Name of the bucket within the app.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be a-z, 0-9 and -, with a letter or digit at both ends"
	Name string `json:"name"`
	// Public lets anyone read the objects.
	// +optional
	// +kubebuilder:default=false
	Public bool `json:"public,omitempty"`
	// MaxFileSize is what the app may let its users upload at once, such as 10MB or
	// 512Ki. The app reads it from S3_MAX_FILE_SIZE_<NAME>, in bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([1-9][0-9]{0,8}(k|M|G|Ki|Mi|Gi)?|[1-9][0-9]{0,5}(T|Ti))B?$')",message="must be a number of bytes such as 10MB, 512Ki or 1048576, of at most 999999Ti"
	MaxFileSize string `json:"maxFileSize,omitempty"`
}

// Auth is a Keycloak realm with a client for the app.
type Auth struct {
	// Enabled makes the realm. When it becomes false, deletionPolicy decides.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// Providers that users may log in with beside a password. Their credentials are set
	// in Keycloak; those that are not are named in the condition AuthReady.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Providers []AuthProvider `json:"providers,omitempty"`
	// SharedWith are the namespaces whose Applications of the same name may use the realm,
	// with their own redirect URIs: they log in the same users. It counts for the
	// namespace that the realm belongs to, which is the first. Absent: no other.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	SharedWith []Namespace `json:"sharedWith,omitempty"`
	// DeletionPolicy is what becomes of the realm with its users when its last owner goes.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// AuthProvider is an identity provider.
//
// +kubebuilder:validation:Enum=google;github;saml;oidc
type AuthProvider string

// Managed is a service that exists already.
type Managed struct {
	// Enabled gives the app the service's variables.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
}

// Scaling bounds the autoscaler.
//
// +kubebuilder:validation:XValidation:rule="self.min <= self.max",message="min must be at most max",fieldPath=".min"
type Scaling struct {
	// Min is the least number of pods.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Min int32 `json:"min,omitempty"`
	// Max is the greatest number of pods.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Max int32 `json:"max,omitempty"`
	// TargetCPU is the use of the requested CPU that is aimed at, in percent.
	// +optional
	// +kubebuilder:default=70
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	TargetCPU int32 `json:"targetCPU,omitempty"`
}

// CORS says which origins beside the app's own may send requests.
type CORS struct {
	// Origins such as https://app.example.com.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Origins []Origin `json:"origins,omitempty"`
}

// Origin is a scheme and a host, with a port if it is not the scheme's.
//
// +kubebuilder:validation:MaxLength=272
// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[1-9][0-9]{0,4})?$')",message="must be an origin such as https://app.example.com, without a path and without *"
type Origin string
