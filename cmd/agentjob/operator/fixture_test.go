package operator //nolint:testpackage // what is rendered is not exported

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// secretValue is in all Secrets of the tests, and in nothing that is rendered.
const secretValue = "sesame"

// memory is a namespace: objects by plural and name, the data of Secrets and of
// ConfigMaps.
type memory struct {
	objects map[string]any
	secrets map[string]map[string]string
	configs map[string]map[string]string // the data of ConfigMaps
	fails   map[string]error             // by plural and name
	reads   []string
}

func (m *memory) lookup(at kube.Reference, into any) error {
	key := at.Resource.Resource + "/" + at.Name
	if err := m.fails[key]; err != nil {
		return err
	}
	o, ok := m.objects[key]
	if !ok || at.Namespace != "team" {
		return kube.ErrAbsent
	}
	text, err := json.Marshal(o)
	return errors.Join(err, json.Unmarshal(text, into))
}

func (m *memory) keys(at kube.Reference) (map[string]bool, error) {
	key := at.Resource.Resource + "/" + at.Name
	m.reads = append(m.reads, key)
	if err := m.fails[key]; err != nil {
		return nil, err
	}
	data, ok := m.secrets[at.Name]
	if at.Resource == configsResource {
		data, ok = m.configs[at.Name]
	}
	if !ok || at.Namespace != "team" {
		return nil, kube.ErrAbsent
	}
	keys := map[string]bool{}
	for key := range data {
		keys[key] = true
	}
	return keys, nil
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "team"} }

// minimal returns a job with the required fields and the defaults of the server, and the
// objects that it refers to.
func minimal() (*v1alpha1.AgentJob, *memory) {
	job := &v1alpha1.AgentJob{ObjectMeta: named("review"), Spec: v1alpha1.AgentJobSpec{
		RuntimeRef: "claude", AuthRef: "login", RoleRef: "reader", Prompt: "Review <main> & \"report\".",
		Timezone: "Etc/UTC", OnChange: v1alpha1.Replace, TimeoutSeconds: 3600, Access: v1alpha1.ClusterScope,
		Storage: v1alpha1.Storage{Size: resource.MustParse("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}}
	job.UID = "3f6c2c0e-0000-4000-8000-000000000001"
	return job, &memory{
		objects: map[string]any{
			"agentruntimes/claude": &v1alpha1.AgentRuntime{ObjectMeta: named("claude"), Spec: v1alpha1.AgentRuntimeSpec{
				Image: "example.com/agent:1", AuthEnvVar: "AGENT_TOKEN", ConfigPath: "/etc/agent", PersistPath: "/data",
			}},
			"agentauths/login": &v1alpha1.AgentAuth{
				ObjectMeta: named("login"),
				Spec:       v1alpha1.AgentAuthSpec{SecretRef: v1alpha1.SecretKey{Name: "login", Key: "token"}},
			},
			"agentroles/reader": &v1alpha1.AgentRole{
				ObjectMeta: named("reader"),
				Spec:       v1alpha1.AgentRoleSpec{AllowedTools: []string{"Read", "Bash(git log *)"}},
			},
		},
		secrets: map[string]map[string]string{"login": {"token": secretValue}},
	}
}

// everything returns a job that sets every field.
func everything() (*v1alpha1.AgentJob, *memory) {
	job, m := minimal()
	spec := &job.Spec
	spec.Schedule, spec.Timezone = "*/5 8-18 * * mon-fri", "Europe/Berlin"
	spec.SkillRef, spec.ClusterAccessRef = "triage", "viewer"
	spec.McpServerRefs, spec.RepositoryRefs = []v1alpha1.Name{"local", "remote"}, []v1alpha1.Name{"shop", "docs"}
	spec.Instructions, spec.Model = "Be brief.\nBe kind.", "opus"
	spec.Env = []corev1.EnvVar{
		{Name: "GREETING", Value: "hello"},
		{
			Name: "API_KEY",
			ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "api"},
			},
		},
	}
	spec.EnvFrom = []corev1.EnvFromSource{
		{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "plain"}}},
	}
	spec.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.5")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1024Mi")},
	}
	spec.TimeoutSeconds, spec.Persist = 600, true
	spec.Storage = v1alpha1.Storage{
		Size:        resource.MustParse("5Gi"),
		ClassName:   new("fast"),
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
	}
	spec.NetworkPolicy = &v1alpha1.NetworkPolicy{Egress: []networkingv1.NetworkPolicyEgressRule{{
		To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "203.0.113.0/24"}}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(443))}},
	}}}
	spec.ImagePullSecrets, spec.PriorityClassName = []v1alpha1.ImagePullSecret{{Name: "registry"}}, "low"
	spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
	spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	spec.ServiceAccountAnnotations = map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}
	m.objects["agentruntimes/claude"].(*v1alpha1.AgentRuntime).Spec.Command = []string{"/agent", "--once"}
	m.objects["agentskills/triage"] = &v1alpha1.AgentSkill{
		ObjectMeta: named("triage"),
		Spec:       v1alpha1.AgentSkillSpec{Repo: "example/skills", Name: "triage", Ref: "main"},
	}
	m.objects["clusteraccesses/viewer"] = &v1alpha1.ClusterAccess{
		ObjectMeta: named("viewer"),
		Spec: v1alpha1.ClusterAccessSpec{Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"}, Verbs: []string{"get", "list"}},
			{NonResourceURLs: []string{"/version"}, Verbs: []string{"get"}},
		}},
	}
	m.objects["mcpservers/local"] = &v1alpha1.McpServer{ObjectMeta: named("local"), Spec: v1alpha1.McpServerSpec{
		Command: "mcp-files", Args: []string{"--root", "/data"}, Env: []corev1.EnvVar{
			{
				Name: "MCP_KEY",
				ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "mcp"},
				},
			},
		},
	}}
	m.objects["mcpservers/remote"] = &v1alpha1.McpServer{ObjectMeta: named("remote"), Spec: v1alpha1.McpServerSpec{
		URL: "https://mcp.example.com/v1", HeadersSecretRef: &v1alpha1.SecretKey{Name: "headers", Key: "remote"},
	}}
	m.objects["repositories/shop"] = &v1alpha1.Repository{ObjectMeta: named("shop"), Spec: v1alpha1.RepositorySpec{
		Owner: "example", Name: "shop", TokenSecretRef: &v1alpha1.SecretKey{Name: "github", Key: "shop"},
	}}
	m.objects["repositories/docs"] = &v1alpha1.Repository{
		ObjectMeta: named("docs"),
		Spec:       v1alpha1.RepositorySpec{Owner: "example", Name: "docs"},
	}
	for name, key := range map[string]string{"github": "shop", "headers": "remote", "settings": "any"} {
		m.secrets[name] = map[string]string{key: secretValue}
	}
	m.configs = map[string]map[string]string{"plain": {"any": "value"}}
	m.secrets["keys"] = map[string]string{"api": secretValue, "mcp": secretValue}
	return job, m
}

func planned(t *testing.T, job *v1alpha1.AgentJob, from *memory) *plan {
	t.Helper()
	r, err := resolve(job, from)
	require.NoError(t, err)
	p, err := newPlan(r)
	require.NoError(t, err)
	return p
}
