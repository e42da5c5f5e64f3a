package operator //nolint:testpackage // what is rendered is not exported

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rendered returns all that is made for a job as YAML: with a schedule a CronJob, else
// a Job.
func rendered(t *testing.T, p *plan) string {
	t.Helper()
	objects := p.base()
	if p.from.job.Spec.Schedule != "" {
		objects = append(objects, p.cron(p.from.job.Spec.Suspend))
	} else {
		objects = append(objects, p.run(p.want()))
	}
	ignore, err := ignored()
	require.NoError(t, err)
	_, err = apply.NewSet(owner(), objects, apply.SetOptions{Part: string(p.from.job.UID), Ignore: ignore})
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString("# configHash " + p.configHash + ", templateHash " + p.templateHash + "\n")
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		text.WriteString("---\n" + string(data))
	}
	return text.String()
}

// goldenJobs returns the jobs of the golden files.
func goldenJobs() map[string]func() (*v1alpha1.AgentJob, *memory) {
	return map[string]func() (*v1alpha1.AgentJob, *memory){
		"minimal":   minimal,
		"scheduled": everything,
		"once": func() (*v1alpha1.AgentJob, *memory) {
			job, m := everything()
			job.Spec.Schedule, job.Spec.Access, job.Spec.NetworkPolicy = "", v1alpha1.NamespaceScope, &v1alpha1.NetworkPolicy{}
			job.Annotations = map[string]string{v1alpha1.AnnotationRerun: "2"}
			return job, m
		},
	}
}

func TestJobsAreRenderedAsTheContractSays(t *testing.T) {
	t.Parallel()
	for name, build := range goldenJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, m := build()
			got := rendered(t, planned(t, job, m))
			golden := filepath.Join("testdata", "render", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o750))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(string(want), got), "run with -update to accept")
			require.NotContains(t, got, secretValue)
			for _, text := range strings.Split(got, "---\n")[1:] {
				var o unstructured.Unstructured
				require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
				for label, value := range labels(job) {
					require.Equal(t, value, o.GetLabels()[label], "%s %s", o.GetKind(), label)
				}
			}
		})
	}
}

// TestRenderingDependsOnWhatTheObjectsSayAlone renders twice, and what the server
// returns for the same objects.
func TestRenderingDependsOnWhatTheObjectsSayAlone(t *testing.T) {
	t.Parallel()
	for name, build := range goldenJobs() {
		job, m := build()
		p := planned(t, job, m)
		want := rendered(t, p)
		require.Equal(t, want, rendered(t, p), name)
		require.Equal(t, want, rendered(t, planned(t, stored(t, job), m)), name)
	}
}

// stored returns an object as the operator reads it from the server.
func stored[T any](t *testing.T, of *T) *T {
	t.Helper()
	text, err := json.Marshal(of)
	require.NoError(t, err)
	var o map[string]any
	require.NoError(t, json.Unmarshal(text, &o))
	read := new(T)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o, read))
	return read
}

// TestWhatChangesTheHashes takes a job with everything, changes one thing, and compares
// the hashes: a new one is a new run.
func TestWhatChangesTheHashes(t *testing.T) {
	t.Parallel()
	const config, template = 1, 2
	key := v1alpha1.SecretKey{Name: "other", Key: "other"}
	for name, c := range map[string]struct {
		changes int
		change  func(*resolved)
	}{
		"prompt":               {config, func(r *resolved) { r.job.Spec.Prompt += "." }},
		"instructions":         {config, func(r *resolved) { r.job.Spec.Instructions = "" }},
		"model":                {config, func(r *resolved) { r.job.Spec.Model = "" }},
		"allowed tools":        {config, func(r *resolved) { r.role.Spec.AllowedTools = []string{"Read"} }},
		"order of tools":       {config, func(r *resolved) { r.role.Spec.AllowedTools = []string{"Bash(git log *)", "Read"} }},
		"no skill":             {config, func(r *resolved) { r.skill = nil }},
		"skill repo":           {config, func(r *resolved) { r.skill.Spec.Repo = "other/skills" }},
		"skill name":           {config, func(r *resolved) { r.skill.Spec.Name = "other" }},
		"skill ref":            {config, func(r *resolved) { r.skill.Spec.Ref = "v2" }},
		"no server":            {config | template, func(r *resolved) { r.servers = nil }},
		"order of servers":     {config, func(r *resolved) { r.servers[0], r.servers[1] = r.servers[1], r.servers[0] }},
		"server name":          {config, func(r *resolved) { r.servers[0].Name = "other" }},
		"server command":       {config, func(r *resolved) { r.servers[0].Spec.Command = "other" }},
		"server args":          {config, func(r *resolved) { r.servers[0].Spec.Args = nil }},
		"server env":           {template, func(r *resolved) { r.servers[0].Spec.Env = nil }},
		"server url":           {config, func(r *resolved) { r.servers[1].Spec.URL += "/x" }},
		"no headers":           {config | template, func(r *resolved) { r.servers[1].Spec.HeadersSecretRef = nil }},
		"headers Secret":       {template, func(r *resolved) { r.servers[1].Spec.HeadersSecretRef = &key }},
		"no repository":        {config | template, func(r *resolved) { r.repositories = nil }},
		"repository name":      {config, func(r *resolved) { r.repositories[1].Name = "other" }},
		"repository owner":     {config, func(r *resolved) { r.repositories[1].Spec.Owner = "other" }},
		"repository":           {config, func(r *resolved) { r.repositories[1].Spec.Name = "other" }},
		"a token":              {config | template, func(r *resolved) { r.repositories[1].Spec.TokenSecretRef = &key }},
		"token Secret":         {template, func(r *resolved) { r.repositories[0].Spec.TokenSecretRef = &key }},
		"image":                {template, func(r *resolved) { r.runtime.Spec.Image += ".1" }},
		"command":              {template, func(r *resolved) { r.runtime.Spec.Command = nil }},
		"authEnvVar":           {template, func(r *resolved) { r.runtime.Spec.AuthEnvVar = "OTHER" }},
		"configPath":           {template, func(r *resolved) { r.runtime.Spec.ConfigPath = "/other" }},
		"persistPath":          {template, func(r *resolved) { r.runtime.Spec.PersistPath = "/other" }},
		"auth Secret":          {template, func(r *resolved) { r.auth.Spec.SecretRef.Name = "other" }},
		"auth key":             {template, func(r *resolved) { r.auth.Spec.SecretRef.Key = "other" }},
		"no env":               {template, func(r *resolved) { r.job.Spec.Env = nil }},
		"env value":            {template, func(r *resolved) { r.job.Spec.Env[0].Value = "other" }},
		"env Secret":           {template, func(r *resolved) { r.job.Spec.Env[1].ValueFrom.SecretKeyRef.Name = "other" }},
		"envFrom":              {template, func(r *resolved) { r.job.Spec.EnvFrom[0].Prefix = "" }},
		"resources":            {template, func(r *resolved) { r.job.Spec.Resources.Limits = nil }},
		"timeout":              {template, func(r *resolved) { r.job.Spec.TimeoutSeconds++ }},
		"no persist":           {template, func(r *resolved) { r.job.Spec.Persist = false }},
		"access rules":         {template, func(r *resolved) { r.access.Spec.Rules = r.access.Spec.Rules[:1] }},
		"no access":            {template, func(r *resolved) { r.access = nil }},
		"access without rules": {template, func(r *resolved) { r.access.Spec.Rules = nil }},
		"access scope":         {template, func(r *resolved) { r.job.Spec.Access = v1alpha1.NamespaceScope }},
		"no network policy":    {template, func(r *resolved) { r.job.Spec.NetworkPolicy = nil }},
		"egress to everything": {template, func(r *resolved) { r.job.Spec.NetworkPolicy.Egress = nil }},
		"egress port":          {template, func(r *resolved) { r.job.Spec.NetworkPolicy.Egress[0].Ports = nil }},
		"pull secrets":         {template, func(r *resolved) { r.job.Spec.ImagePullSecrets = nil }},
		"node selector":        {template, func(r *resolved) { r.job.Spec.NodeSelector = nil }},
		"tolerations":          {template, func(r *resolved) { r.job.Spec.Tolerations = nil }},
		"priority":             {template, func(r *resolved) { r.job.Spec.PriorityClassName = "" }},
		"account":              {template, func(r *resolved) { r.job.Spec.ServiceAccountAnnotations = nil }},
		"suspend":              {0, func(r *resolved) { r.job.Spec.Suspend = true }},
		"onChange":             {0, func(r *resolved) { r.job.Spec.OnChange = v1alpha1.Keep }},
		"schedule":             {0, func(r *resolved) { r.job.Spec.Schedule = "" }},
		"timezone":             {0, func(r *resolved) { r.job.Spec.Timezone = "Etc/UTC" }},
		"storage":              {0, func(r *resolved) { r.job.Spec.Storage = v1alpha1.Storage{Size: resource.MustParse("9Gi")} }},
		"status":               {0, func(r *resolved) { r.job.Status = v1alpha1.AgentJobStatus{Phase: v1alpha1.Failed, ConfigHash: "x"} }},
		"metadata":             {0, func(r *resolved) { r.job.Annotations, r.job.Labels, r.job.Generation = labelled(), labelled(), 9 }},
		"the version of a": {0, func(r *resolved) {
			r.runtime.Generation, r.runtime.ResourceVersion, r.runtime.Labels = 9, "9", labelled()
		}},
		"names of what is inner": {0, func(r *resolved) {
			r.runtime.Name, r.auth.Name, r.role.Name, r.skill.Name, r.access.Name = "a", "b", "c", "d", "e"
		}},
		"a quantity stated again": {0, func(r *resolved) { r.job.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("500m") }},
		"[] for nothing":          {0, func(r *resolved) { r.servers[1].Spec.Args, r.servers[1].Spec.Env = []string{}, []corev1.EnvVar{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, m := everything()
			before := planned(t, job, m)
			r, err := resolve(stored(t, job), m)
			require.NoError(t, err)
			c.change(r)
			after, err := newPlan(r)
			require.NoError(t, err)
			require.Equal(t, c.changes&config != 0, before.configHash != after.configHash, "configHash")
			require.Equal(t, c.changes&template != 0, before.templateHash != after.templateHash, "templateHash")
			require.Equal(t, c.changes != 0, before.want() != after.want(), "the run")
			require.Regexp(t, "^[0-9a-f]{16}$", after.configHash)
			require.Regexp(t, "^[0-9a-f]{16}$", after.templateHash)
		})
	}
}

func labelled() map[string]string { return map[string]string{"example.com/x": "y"} }

func TestUnusedFieldsAreNotHashed(t *testing.T) {
	t.Parallel()
	job, m := minimal()
	before := planned(t, job, m)
	job.Spec.Access = v1alpha1.NamespaceScope
	m.objects["agentruntimes/claude"].(*v1alpha1.AgentRuntime).Spec.PersistPath = "/other"
	after := planned(t, job, m)
	require.Equal(t, before.want(), after.want())
}

// TestNoEgressIsNotAllEgress keeps an empty list apart from none: the first reaches
// nothing, the second everything.
func TestNoEgressIsNotAllEgress(t *testing.T) {
	t.Parallel()
	job, m := minimal()
	job.Spec.NetworkPolicy = &v1alpha1.NetworkPolicy{Egress: []networkingv1.NetworkPolicyEgressRule{}}
	none := planned(t, stored(t, job), m)
	job.Spec.NetworkPolicy = &v1alpha1.NetworkPolicy{}
	all := planned(t, stored(t, job), m)
	types := func(p *plan) []string {
		found, _, err := unstructured.NestedStringSlice(p.isolation().Object, "spec", "policyTypes")
		require.NoError(t, err)
		return found
	}
	require.Equal(t, []string{"Ingress", "Egress"}, types(none))
	require.Equal(t, []string{"Ingress"}, types(all))
	require.NotEqual(t, none.templateHash, all.templateHash)
}

func TestTheConfigHasALimit(t *testing.T) {
	t.Parallel()
	job, m := minimal()
	job.Spec.Prompt = ""
	empty := len(planned(t, job, m).config[configFile])
	job.Spec.Prompt = strings.Repeat("x", maxConfig-empty)
	require.Len(t, planned(t, job, m).config[configFile], 900<<10)
	job.Spec.Prompt += "x"
	r, err := resolve(job, m)
	require.NoError(t, err)
	_, err = newPlan(r)
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "the config has 921601 bytes, it may have 921600")
	require.Less(t, len(err.Error()), 200)
}

func TestChildrenOfTwoJobsNeverShareAName(t *testing.T) {
	t.Parallel()
	one, two := &v1alpha1.AgentJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a-b", Name: "c"},
	}, &v1alpha1.AgentJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b-c"},
	}
	require.NotEqual(t, roleName(one), roleName(two))
	long := &v1alpha1.AgentJob{ObjectMeta: named(strings.Repeat("a", 46))}
	require.Len(t, jobName(long, want{runHash("", ""), "again"}), 63)
	require.NotEqual(t, want{hash: "a", rerun: "1"}.jobSuffix(), want{hash: "a", rerun: "2"}.jobSuffix())
}

// FuzzRenderConfig renders texts that people write: agent.json holds them as they are,
// and another prompt is another hash.
func FuzzRenderConfig(f *testing.F) {
	f.Add("work", "", "", "Read", "-x")
	f.Add("</script>\u2028\x00\"\\", "a\nb", "\ufffd", "Bash(git *)", "")
	f.Fuzz(func(t *testing.T, prompt, instructions, model, tool, arg string) {
		for _, text := range []string{prompt, instructions, model, tool, arg} {
			if !utf8.ValidString(text) {
				t.Skip("the API server has none")
			}
		}
		job, m := everything()
		job.Spec.Prompt, job.Spec.Instructions, job.Spec.Model = prompt, instructions, model
		m.objects["agentroles/reader"].(*v1alpha1.AgentRole).Spec.AllowedTools = []string{tool}
		m.objects["mcpservers/local"].(*v1alpha1.McpServer).Spec.Args = []string{arg, prompt}
		p := planned(t, job, m)
		var got agentConfig
		require.NoError(t, json.Unmarshal([]byte(p.config[configFile]), &got))
		require.Equal(t, agentConfig{
			Prompt: prompt, Instructions: instructions, Model: model, AllowedTools: []string{tool},
			Skill: &skillConfig{"example/skills", "triage", "main"},
			McpServers: []serverConfig{
				{Name: "local", Command: "mcp-files", Args: []string{arg, prompt}},
				{Name: "remote", URL: "https://mcp.example.com/v1", HeadersFile: "/var/run/thurkube/mcp/remote/headers.json"},
			},
			Repositories: []repositoryConfig{
				{Name: "shop", Owner: "example", Repo: "shop", TokenFile: "/var/run/thurkube/repos/shop/token"},
				{Name: "docs", Owner: "example", Repo: "docs"},
			},
		}, got)
		require.Equal(t, p.want(), planned(t, stored(t, job), m).want())
		job.Spec.Prompt += "x"
		require.NotEqual(t, p.configHash, planned(t, job, m).configHash)
		job.Spec.Prompt, job.Spec.Instructions = prompt+instructions, ""
		if instructions != "" {
			require.NotEqual(t, p.configHash, planned(t, job, m).configHash)
		}
	})
}

// TestRulesAreRenderedInFull is the promise that a ClusterAccess says what a ClusterRole
// may say.
func TestRulesAreRenderedInFull(t *testing.T) {
	t.Parallel()
	job, m := everything()
	rule := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"pods/log"}, ResourceNames: []string{"x"}, Verbs: []string{"*"}}
	m.objects["clusteraccesses/viewer"].(*v1alpha1.ClusterAccess).Spec.Rules = []rbacv1.PolicyRule{rule}
	var role rbacv1.ClusterRole
	require.NoError(t, into(planned(t, job, m).rights()[0].Object, &role))
	require.Equal(t, []rbacv1.PolicyRule{rule}, role.Rules)
}
