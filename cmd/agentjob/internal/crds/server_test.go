package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/internal/crds"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestTheServerTakesTheDefinitions is D26 and the part of D20 that the API server
// decides.
func TestTheServerTakesTheDefinitions(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	definitions, err := crds.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definitions)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	job := func(name, more string) string {
		return object("AgentJob", name, "{runtimeRef: r, authRef: a, roleRef: o, prompt: work"+more+"}")
	}

	t.Run("what is right", func(t *testing.T) {
		t.Parallel()
		for kind, spec := range map[string]string{
			"AgentRuntime":  "{image: agent, authEnvVar: TOKEN, configPath: /etc/agent, persistPath: /data}",
			"AgentAuth":     "{secretRef: {name: s, key: k}}",
			"AgentRole":     "{allowedTools: ['Bash(git *)']}",
			"AgentSkill":    "{repo: owner/repo, name: skill}",
			"McpServer":     "{url: 'https://mcp.example.com/v1', headersSecretRef: {name: s, key: k}}",
			"Repository":    "{owner: owner, name: repo, tokenSecretRef: {name: s, key: k}}",
			"ClusterAccess": "{rules: [{apiGroups: [''], resources: [pods], resourceNames: [x], verbs: [get]}, {nonResourceURLs: [/healthz], verbs: [get]}]}",
			"AgentJob":      "{runtimeRef: r, authRef: a, roleRef: o, prompt: work}",
		} {
			require.NoError(t, cluster.Apply(t.Context(), object(kind, "right", spec)), kind)
			plural := map[string]string{"McpServer": "mcpservers", "ClusterAccess": "clusteraccesses", "Repository": "repositories"}[kind]
			if plural == "" {
				plural = strings.ToLower(kind) + "s"
			}
			out, err := cluster.Kubectl(t.Context(), "get", plural+".thurkube.thurbeen.eu", "right", "-o", "name")
			require.NoError(t, err)
			require.Equal(t, strings.ToLower(kind)+".thurkube.thurbeen.eu/right\n", out)
		}
		require.NoError(
			t,
			cluster.Apply(
				t.Context(),
				object("AgentRuntime", "within", "{image: agent, authEnvVar: TOKEN, configPath: /home/agent/.config, persistPath: /tmp/data}"),
			),
		)
		require.NoError(
			t,
			cluster.Apply(t.Context(), job("lists", ", mcpServerRefs: [a, b], repositoryRefs: [a, b], networkPolicy: {egress: []}")),
		)
		out, err := cluster.Kubectl(t.Context(), "get", "aj", "right", "-o", "jsonpath={.spec}")
		require.NoError(t, err)
		require.JSONEq(
			t,
			`{"runtimeRef":"r","authRef":"a","roleRef":"o","prompt":"work","timezone":"Etc/UTC","suspend":false,"onChange":"Replace",
			"timeoutSeconds":3600,"persist":false,"storage":{"size":"1Gi","accessModes":["ReadWriteOnce"]},"access":"Cluster"}`,
			out,
		)
		out, err = cluster.Kubectl(t.Context(), "get", "ask", "right", "-o", "jsonpath={.spec.ref}")
		require.NoError(t, err)
		require.Equal(t, "main", out)
		for n, schedule := range []string{"*/1 * * * *", "0 0 1 1 *", "@daily", "0,30 8-18/2 * JAN-mar mon-FRI", "5 4 * * 0", "? ? ? ? ?"} {
			require.NoError(
				t,
				cluster.Apply(t.Context(), job(fmt.Sprint("cron-", n), ", timezone: Europe/Berlin, schedule: '"+schedule+"'")),
				schedule,
			)
		}
		require.NoError(t, cluster.Apply(t.Context(), job(strings.Repeat("a", 46), "")))
		for _, plural := range []string{"agentjobs", "agentruntimes", "agentauths", "agentroles", "agentskills", "mcpservers", "repositories", "clusteraccesses"} {
			plural += ".thurkube.thurbeen.eu"
			out, err := cluster.Kubectl(t.Context(), "get", plural, "-o", "name")
			require.NoError(t, err)
			require.Contains(t, out, "/right\n", plural)
			_, err = cluster.Kubectl(t.Context(), "delete", plural, "right", "--timeout=60s")
			require.NoError(t, err)
		}
	})
	for why, c := range map[string]struct{ kind, name, spec, message string }{
		"a long name":            {"AgentJob", strings.Repeat("a", 47), "{runtimeRef: r, authRef: a, roleRef: o, prompt: work}", "at most 46 characters"},
		"no prompt":              {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o}", "spec.prompt: Required"},
		"no runtime":             {"AgentJob", "j", "{authRef: a, roleRef: o, prompt: work}", "spec.runtimeRef: Required"},
		"another namespace":      {"AgentJob", "j", "{runtimeRef: other/x, authRef: a, roleRef: o, prompt: work}", "spec.runtimeRef"},
		"HOME":                   {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, env: [{name: HOME, value: /root}]}", "env must not set HOME"},
		"a variable twice":       {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, env: [{name: A}, {name: A}]}", "duplicate entries"},
		"no time":                {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, timeoutSeconds: 0}", "spec.timeoutSeconds"},
		"more than a week":       {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, timeoutSeconds: 604801}", "spec.timeoutSeconds"},
		"the minute 61":          {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, schedule: '61 * * * *'}", "five fields"},
		"the weekday 7":          {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, schedule: '* * * * 7'}", "five fields"},
		"six fields":             {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, schedule: '0 * * * * *'}", "five fields"},
		"an unknown macro":       {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, schedule: '@reboot'}", "five fields"},
		"a zone in the schedule": {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, schedule: 'TZ=UTC * * * * *'}", "five fields"},
		"the zone Local":         {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, timezone: Local}", "Local depends on the server"},
		"another decision":       {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, onChange: Never}", "Unsupported value"},
		"command and url":        {"McpServer", "m", "{command: mcp, url: 'https://mcp.example.com'}", "exactly one of command and url"},
		"neither":                {"McpServer", "m", "{env: []}", "exactly one of command and url"},
		"a password in the url":  {"McpServer", "m", "{url: 'https://me:secret@mcp.example.com'}", "spec.url"},
		"a relative path":        {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: etc, persistPath: /data}", "spec.configPath"},
		"one path":               {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /data, persistPath: /data}", "two paths"},
		"a path in another":      {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /data/a, persistPath: /data}", "two paths"},
		"a path that goes up":    {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /etc/../a, persistPath: /data}", "must not have . or .."},
		"the token as HOME":      {"AgentRuntime", "r", "{image: agent, authEnvVar: HOME, configPath: /etc/a, persistPath: /data}", "must not be HOME"},
		"the path of tokens":     {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /etc/a, persistPath: /var/run/thurkube}", "are volumes of every run"},
		"a path of one token":    {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /var/run/thurkube/repos/x, persistPath: /data}", "are volumes of every run"},
		"a path around the home": {"AgentRuntime", "r", "{image: agent, authEnvVar: TOKEN, configPath: /home, persistPath: /data}", "are volumes of every run"},
		"a server twice":         {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, mcpServerRefs: [a, b, a]}", "spec.mcpServerRefs: Invalid value"},
		"a repository twice":     {"AgentJob", "j", "{runtimeRef: r, authRef: a, roleRef: o, prompt: work, repositoryRefs: [m, m]}", "must not have a name twice"},
		"no owner":               {"AgentSkill", "s", "{repo: skill, name: s}", "spec.repo"},
		"a url as owner":         {"Repository", "r", "{owner: 'https://github.com', name: x}", "spec.owner"},
		"a path as name":         {"Repository", "r", "{owner: o, name: ..}", "must be the name of a repository"},
		"no rules":               {"ClusterAccess", "c", "{}", "spec.rules: Required"},
		"no key":                 {"AgentAuth", "a", "{secretRef: {name: s}}", "spec.secretRef.key: Required"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, cluster.Apply(t.Context(), object(c.kind, c.name, c.spec)), c.message)
		})
	}
}

func object(kind, name, spec string) string {
	return fmt.Sprintf(
		"{apiVersion: thurkube.thurbeen.eu/v1alpha1, kind: %s, metadata: {name: %s, namespace: default}, spec: %s}\n---\n",
		kind,
		name,
		spec,
	)
}
