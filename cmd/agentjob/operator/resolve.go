package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// errInvalid is a spec that is wrong in a way that admission does not see. Only a change
// cures it.
var errInvalid = errors.New("invalid")

// The kinds that AgentJobs refer to.
func resourceOf(plural string) schema.GroupVersionResource {
	return v1alpha1.GroupVersion().WithResource(plural)
}

const (
	jobsPlural         = "agentjobs"
	runtimesPlural     = "agentruntimes"
	authsPlural        = "agentauths"
	rolesPlural        = "agentroles"
	skillsPlural       = "agentskills"
	serversPlural      = "mcpservers"
	repositoriesPlural = "repositories"
	accessesPlural     = "clusteraccesses"
)

var (
	secretsResource    = corev1.SchemeGroupVersion.WithResource("secrets")    //nolint:gochecknoglobals // constant
	configsResource    = corev1.SchemeGroupVersion.WithResource("configmaps") //nolint:gochecknoglobals // constant
	namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces") //nolint:gochecknoglobals // constant
)

// resolved is a job with everything that it refers to.
type resolved struct {
	job          *v1alpha1.AgentJob
	runtime      *v1alpha1.AgentRuntime
	auth         *v1alpha1.AgentAuth
	role         *v1alpha1.AgentRole
	skill        *v1alpha1.AgentSkill    // nil: none
	access       *v1alpha1.ClusterAccess // nil: none
	servers      []*v1alpha1.McpServer
	repositories []*v1alpha1.Repository
}

// referencesOf returns the objects that a job names itself. Those name Secrets and
// ConfigMaps in turn.
func referencesOf(job *v1alpha1.AgentJob) []kube.Reference {
	spec := &job.Spec
	found := []kube.Reference{{Resource: namespacesResource, Name: job.Namespace}}
	add := func(plural string, names ...v1alpha1.Name) {
		for _, name := range names {
			if name != "" {
				found = append(found, kube.Reference{Resource: resourceOf(plural), Namespace: job.Namespace, Name: string(name)})
			}
		}
	}
	add(runtimesPlural, spec.RuntimeRef)
	add(authsPlural, spec.AuthRef)
	add(rolesPlural, spec.RoleRef)
	add(skillsPlural, spec.SkillRef)
	add(accessesPlural, spec.ClusterAccessRef)
	add(serversPlural, spec.McpServerRefs...)
	add(repositoriesPlural, spec.RepositoryRefs...)
	for _, key := range envKeys(spec.Env, spec.EnvFrom) {
		found = append(found, key.in(job.Namespace))
	}
	return found
}

// dataKey is a key of a Secret or ConfigMap. An empty key stands for the object.
type dataKey struct {
	resource  schema.GroupVersionResource
	name, key string
}

func secretKey(ref v1alpha1.SecretKey) dataKey {
	return dataKey{secretsResource, string(ref.Name), ref.Key}
}

func (k dataKey) in(namespace string) kube.Reference {
	return kube.Reference{Resource: k.resource, Namespace: namespace, Name: k.name}
}

// String names the object for people.
func (k dataKey) String() string {
	if k.resource == configsResource {
		return fmt.Sprintf("ConfigMap %q", k.name)
	}
	return fmt.Sprintf("Secret %q", k.name)
}

// envKeys returns the keys of Secrets and ConfigMaps without which no pod starts.
func envKeys(env []corev1.EnvVar, from []corev1.EnvFromSource) (keys []dataKey) {
	add := func(optional *bool, key dataKey) {
		if key.name != "" && (optional == nil || !*optional) {
			keys = append(keys, key)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			add(ref.Optional, dataKey{secretsResource, ref.Name, ref.Key})
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(ref.Optional, dataKey{configsResource, ref.Name, ref.Key})
		}
	}
	for _, f := range from {
		if ref := f.SecretRef; ref != nil {
			add(ref.Optional, dataKey{resource: secretsResource, name: ref.Name})
		}
		if ref := f.ConfigMapRef; ref != nil {
			add(ref.Optional, dataKey{resource: configsResource, name: ref.Name})
		}
	}
	return keys
}

// env returns the variables that users have set on the job and on its servers.
func (r *resolved) env() []corev1.EnvVar {
	all := slices.Clone(r.job.Spec.Env)
	for _, s := range r.servers {
		all = append(all, s.Spec.Env...)
	}
	return all
}

// keys returns the keys of Secrets and ConfigMaps that a run needs.
func (r *resolved) keys() []dataKey {
	keys := []dataKey{secretKey(r.auth.Spec.SecretRef)}
	for _, repository := range r.repositories {
		if repository.Spec.TokenSecretRef != nil {
			keys = append(keys, secretKey(*repository.Spec.TokenSecretRef))
		}
	}
	for _, server := range r.servers {
		if server.Spec.HeadersSecretRef != nil {
			keys = append(keys, secretKey(*server.Spec.HeadersSecretRef))
		}
	}
	return append(keys, envKeys(r.env(), r.job.Spec.EnvFrom)...)
}

// brokenError names each reference that leads nowhere.
type brokenError struct{ broken []string }

func (e *brokenError) Error() string { return strings.Join(e.broken, "; ") }

// source is where references are looked up.
type source interface {
	// lookup reads an object into what a pointer points to. It returns kube.ErrAbsent
	// for one that does not exist.
	lookup(at kube.Reference, into any) error
	// keys returns the keys of a Secret or ConfigMap, nil only with an error. It returns
	// kube.ErrAbsent as lookup does.
	keys(at kube.Reference) (map[string]bool, error)
}

// resolve reads everything that the job refers to. The error is a *brokenError that
// names all broken references at once, or the error of a request.
func resolve(job *v1alpha1.AgentJob, from source) (*resolved, error) {
	r, spec := &resolved{job: job}, &job.Spec
	broken := &brokenError{}
	var failed []error
	note := func(what string, err error) {
		if errors.Is(err, kube.ErrAbsent) {
			broken.broken = append(broken.broken, what+": NotFound")
		} else if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	read := func(kind, plural string, name v1alpha1.Name, into any) {
		note(
			fmt.Sprintf("%s %q", kind, name),
			from.lookup(kube.Reference{Resource: resourceOf(plural), Namespace: job.Namespace, Name: string(name)}, into),
		)
	}
	r.runtime, r.auth, r.role = &v1alpha1.AgentRuntime{}, &v1alpha1.AgentAuth{}, &v1alpha1.AgentRole{}
	read("AgentRuntime", runtimesPlural, spec.RuntimeRef, r.runtime)
	read("AgentAuth", authsPlural, spec.AuthRef, r.auth)
	read("AgentRole", rolesPlural, spec.RoleRef, r.role)
	if spec.SkillRef != "" {
		r.skill = &v1alpha1.AgentSkill{}
		read("AgentSkill", skillsPlural, spec.SkillRef, r.skill)
	}
	if spec.ClusterAccessRef != "" {
		r.access = &v1alpha1.ClusterAccess{}
		read("ClusterAccess", accessesPlural, spec.ClusterAccessRef, r.access)
	}
	for _, name := range spec.McpServerRefs {
		server := &v1alpha1.McpServer{}
		read("McpServer", serversPlural, name, server)
		r.servers = append(r.servers, server)
	}
	for _, name := range spec.RepositoryRefs {
		repository := &v1alpha1.Repository{}
		read("Repository", repositoriesPlural, name, repository)
		r.repositories = append(r.repositories, repository)
	}
	present, seen := map[kube.Reference]map[string]bool{}, map[dataKey]bool{}
	for _, key := range r.keys() {
		if key.name == "" || seen[key] {
			continue // of a reference that is broken itself
		}
		seen[key] = true
		at := key.in(job.Namespace)
		if _, read := present[at]; !read {
			keys, err := from.keys(at)
			note(key.String(), err)
			present[at] = keys
		}
		if keys := present[at]; keys != nil && key.key != "" && !keys[key.key] {
			broken.broken = append(broken.broken, fmt.Sprintf("%s, key %q: KeyMissing", key, key.key))
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	if len(broken.broken) > 0 {
		return nil, broken
	}
	return r, r.valid()
}

// valid checks what admission cannot see.
func (r *resolved) valid() error {
	seen := map[string]string{"HOME": "the operator", r.runtime.Spec.AuthEnvVar: "authEnvVar of AgentRuntime " + r.runtime.Name}
	check := func(by string, env []corev1.EnvVar) error {
		for _, e := range env {
			if other, taken := seen[e.Name]; taken {
				return fmt.Errorf("%w: %s: the variable %s is set by %s, too", errInvalid, by, e.Name, other)
			}
			seen[e.Name] = by
		}
		return nil
	}
	err := check("spec.env", r.job.Spec.Env)
	for _, s := range r.servers {
		err = errors.Join(err, check("env of McpServer "+s.Name, s.Spec.Env))
	}
	if r.job.Spec.Schedule == "" || err != nil {
		return err
	}
	if _, parseErr := cron.ParseStandard(r.job.Spec.Schedule); parseErr != nil {
		return fmt.Errorf("%w: spec.schedule: is %q: %w", errInvalid, r.job.Spec.Schedule, parseErr)
	}
	if _, zoneErr := time.LoadLocation(r.job.Spec.Timezone); zoneErr != nil {
		return fmt.Errorf("%w: spec.timezone: %w", errInvalid, zoneErr)
	}
	return nil
}

// into decodes an object that was looked up.
func into(object map[string]any, target any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, target)
}
