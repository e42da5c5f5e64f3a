package operator //nolint:testpackage // resolve is not exported

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

func secretEnv(name, secret, key string, optional *bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: optional,
	}}}
}

func configEnv(name, config, key string, optional *bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: config}, Key: key, Optional: optional,
	}}}
}

func TestEverythingIsResolved(t *testing.T) {
	t.Parallel()
	job, m := everything()
	r, err := resolve(job, m)
	require.NoError(t, err)
	require.Equal(t, "example.com/agent:1", r.runtime.Spec.Image)
	require.Equal(t, []string{"local", "remote"}, []string{r.servers[0].Name, r.servers[1].Name})
	require.Equal(t, []string{"shop", "docs"}, []string{r.repositories[0].Name, r.repositories[1].Name})
	require.Equal(t, "triage", r.skill.Name)
	require.Equal(t, "viewer", r.access.Name)

	job, m = minimal()
	r, err = resolve(job, m)
	require.NoError(t, err)
	require.Nil(t, r.skill)
	require.Nil(t, r.access)
}

// TestAllBrokenReferencesAreNamedAtOnce breaks references one by one and together.
func TestAllBrokenReferencesAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want  []string
		wreck func(*v1alpha1.AgentJob, *memory)
	}{
		"all objects": {
			[]string{
				`AgentRuntime "claude": NotFound`, `AgentAuth "login": NotFound`, `AgentRole "reader": NotFound`,
				`AgentSkill "triage": NotFound`, `ClusterAccess "viewer": NotFound`, `McpServer "local": NotFound`,
				`McpServer "remote": NotFound`, `Repository "shop": NotFound`, `Repository "docs": NotFound`,
			},
			func(_ *v1alpha1.AgentJob, m *memory) { clear(m.objects) },
		},
		"all Secrets, each once": {
			[]string{`Secret "login": NotFound`, `Secret "github": NotFound`, `Secret "headers": NotFound`, `Secret "keys": NotFound`, `Secret "settings": NotFound`},
			func(_ *v1alpha1.AgentJob, m *memory) { clear(m.secrets) },
		},
		"all keys": {
			[]string{
				`Secret "login", key "token": KeyMissing`, `Secret "github", key "shop": KeyMissing`, `Secret "headers", key "remote": KeyMissing`,
				`Secret "keys", key "api": KeyMissing`, `Secret "keys", key "mcp": KeyMissing`,
			},
			func(_ *v1alpha1.AgentJob, m *memory) {
				for name := range m.secrets {
					m.secrets[name] = map[string]string{"unrelated": secretValue}
				}
			},
		},
		"an object, a Secret and a key": {
			[]string{`AgentRole "reader": NotFound`, `Secret "login": NotFound`, `Secret "github", key "shop": KeyMissing`},
			func(_ *v1alpha1.AgentJob, m *memory) {
				delete(m.objects, "agentroles/reader")
				delete(m.secrets, "login")
				delete(m.secrets["github"], "shop")
			},
		},
		"a key that two want": {
			[]string{`Secret "login", key "token": KeyMissing`},
			func(job *v1alpha1.AgentJob, m *memory) {
				job.Spec.Env = []corev1.EnvVar{secretEnv("AGAIN", "login", "token", nil)}
				delete(m.secrets["login"], "token")
			},
		},
		"Secrets that need not be": {
			nil,
			func(job *v1alpha1.AgentJob, _ *memory) {
				job.Spec.Env = []corev1.EnvVar{secretEnv("A", "absent", "key", new(true)), secretEnv("B", "login", "absent", new(true))}
				job.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Optional: new(true),
				}}}
			},
		},
		"a Secret that need not be, false": {
			[]string{`Secret "absent": NotFound`},
			func(job *v1alpha1.AgentJob, _ *memory) {
				job.Spec.Env = []corev1.EnvVar{secretEnv("A", "absent", "key", new(false))}
			},
		},
		"a ConfigMap and its key": {
			[]string{`ConfigMap "absent": NotFound`, `ConfigMap "plain", key "absent": KeyMissing`, `ConfigMap "more": NotFound`},
			func(job *v1alpha1.AgentJob, m *memory) {
				job.Spec.Env = []corev1.EnvVar{configEnv("A", "absent", "any", nil), configEnv("B", "plain", "any", nil), configEnv("C", "plain", "absent", new(false))}
				job.Spec.EnvFrom = append(job.Spec.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}})
				m.secrets["more"] = map[string]string{} // another kind of the same name
			},
		},
		"a ConfigMap that a server names": {
			[]string{`ConfigMap "tools": NotFound`},
			func(_ *v1alpha1.AgentJob, m *memory) {
				serverIn(m, "local").Spec.Env = append(serverIn(m, "local").Spec.Env, configEnv("TOOLS", "tools", "any", nil))
			},
		},
		"ConfigMaps that need not be": {
			nil,
			func(job *v1alpha1.AgentJob, m *memory) {
				clear(m.configs)
				job.Spec.Env = []corev1.EnvVar{configEnv("A", "absent", "key", new(true))}
				job.Spec.EnvFrom[1].ConfigMapRef.Optional = new(true)
			},
		},
		"envFrom needs no key": {
			nil,
			func(_ *v1alpha1.AgentJob, m *memory) { clear(m.secrets["settings"]); clear(m.configs["plain"]) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, m := everything()
			c.wreck(job, m)
			r, err := resolve(job, m)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.Nil(t, r)
			broken, ok := errors.AsType[*brokenError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.want, broken.broken)
			require.NotErrorIs(t, err, errInvalid)
			require.NotContains(t, err.Error(), secretValue)
		})
	}
}

// TestAFailedRequestIsNotABrokenReference keeps a job from being suspended because a
// server does not answer.
func TestAFailedRequestIsNotABrokenReference(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	for _, at := range []string{"agentruntimes/claude", "agentskills/triage", "mcpservers/remote", "repositories/shop", "secrets/github", "secrets/settings", "configmaps/plain"} {
		job, m := everything()
		m.fails = map[string]error{at: away}
		delete(m.objects, "agentroles/reader") // with something broken, too
		r, err := resolve(job, m)
		require.Nil(t, r)
		require.ErrorIs(t, err, away, at)
		_, broken := errors.AsType[*brokenError](err)
		require.False(t, broken, at)
		require.NotErrorIs(t, err, errInvalid)
	}
}

func TestWhatAdmissionDoesNotSeeIsInvalid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want   []string
		change func(*v1alpha1.AgentJob, *memory)
	}{
		"HOME by the job":    {[]string{"spec.env", "HOME", "the operator"}, func(job *v1alpha1.AgentJob, _ *memory) { job.Spec.Env[0].Name = "HOME" }},
		"HOME by a server":   {[]string{"McpServer local", "HOME", "the operator"}, func(_ *v1alpha1.AgentJob, m *memory) { serverIn(m, "local").Spec.Env[0].Name = "HOME" }},
		"the token by a job": {[]string{"spec.env", "AGENT_TOKEN", "authEnvVar of AgentRuntime claude"}, func(job *v1alpha1.AgentJob, _ *memory) { job.Spec.Env[0].Name = "AGENT_TOKEN" }},
		"the token by a server": {
			[]string{"McpServer local", "AGENT_TOKEN", "authEnvVar of AgentRuntime claude"},
			func(_ *v1alpha1.AgentJob, m *memory) { serverIn(m, "local").Spec.Env[0].Name = "AGENT_TOKEN" },
		},
		"the job and a server": {[]string{"McpServer local", "GREETING", "spec.env"}, func(_ *v1alpha1.AgentJob, m *memory) { serverIn(m, "local").Spec.Env[0].Name = "GREETING" }},
		"two servers":          {[]string{"McpServer remote", "MCP_KEY", "McpServer local"}, func(_ *v1alpha1.AgentJob, m *memory) { serverIn(m, "remote").Spec.Env = serverIn(m, "local").Spec.Env }},
		"two clashes": {[]string{"spec.env", "HOME", "McpServer local", "AGENT_TOKEN"}, func(job *v1alpha1.AgentJob, m *memory) {
			job.Spec.Env[0].Name, serverIn(m, "local").Spec.Env[0].Name = "HOME", "AGENT_TOKEN"
		}},
		"a zone of another world": {[]string{"spec.timezone", "Mars/Olympus"}, func(job *v1alpha1.AgentJob, _ *memory) { job.Spec.Timezone = "Mars/Olympus" }},
		"a range backwards":       {[]string{"spec.schedule", `"5-3 * * * *"`}, func(job *v1alpha1.AgentJob, _ *memory) { job.Spec.Schedule = "5-3 * * * *" }},
		"a month by no name":      {[]string{"spec.schedule", `"0 0 1 foo *"`}, func(job *v1alpha1.AgentJob, _ *memory) { job.Spec.Schedule = "0 0 1 foo *" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, m := everything()
			c.change(job, m)
			_, err := resolve(job, m)
			require.ErrorIs(t, err, errInvalid)
			for _, text := range c.want {
				require.ErrorContains(t, err, text)
			}
			_, broken := errors.AsType[*brokenError](err)
			require.False(t, broken)
		})
	}
}

func serverIn(m *memory, name string) *v1alpha1.McpServer {
	return m.objects["mcpservers/"+name].(*v1alpha1.McpServer)
}

// TestWithoutAScheduleTheZoneIsNotRead lets a one-shot be whatever its timezone is.
func TestWithoutAScheduleTheZoneIsNotRead(t *testing.T) {
	t.Parallel()
	job, m := minimal()
	job.Spec.Timezone = "Mars/Olympus"
	_, err := resolve(job, m)
	require.NoError(t, err)
}

// TestKeysAreLookedUpOnce asks for the keys of an object once, however many are wanted.
func TestKeysAreLookedUpOnce(t *testing.T) {
	t.Parallel()
	job, m := everything()
	_, err := resolve(job, m)
	require.NoError(t, err)
	asked := map[string]int{}
	for _, name := range m.reads {
		asked[name]++
	}
	require.Equal(t, map[string]int{
		"secrets/login": 1, "secrets/github": 1, "secrets/headers": 1, "secrets/keys": 1, "secrets/settings": 1, "configmaps/plain": 1,
	}, asked)
}

// TestEveryReferenceIsWatched compares the objects that resolve reads with the watched ones:
// the references of the job, and the Secrets and ConfigMaps that these name.
func TestEveryReferenceIsWatched(t *testing.T) {
	t.Parallel()
	job, m := everything()
	serverIn(m, "local").Spec.Env = append(
		serverIn(m, "local").Spec.Env,
		configEnv("TOOLS", "tools", "any", nil),
		secretEnv("KEY", "vault", "any", nil),
	)
	m.configs["tools"], m.secrets["vault"] = map[string]string{"any": "value"}, map[string]string{"any": secretValue}
	_, err := resolve(job, m)
	require.NoError(t, err)
	read := map[string]bool{"namespaces/team": true}
	for at := range maps.Keys(m.objects) {
		read[at] = true
	}
	for _, at := range m.reads {
		read[at] = true
	}
	watched := map[string]bool{}
	for _, at := range referencesOf(job) {
		key := at.Resource.Resource + "/" + at.Name
		watched[key] = true
		if m.objects[key] == nil {
			continue
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m.objects[key])
		require.NoError(t, err)
		for _, data := range dataOf(at, &unstructured.Unstructured{Object: o}) {
			require.Equal(t, "team", data.Namespace)
			watched[data.Resource.Resource+"/"+data.Name] = true
		}
	}
	require.Equal(t, read, watched)
}
