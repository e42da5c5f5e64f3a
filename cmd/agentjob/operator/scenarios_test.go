package operator_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
)

// TestScenarios runs the operator, with its own rights, on a Kubernetes whose
// controllers run its Jobs on simulated nodes.
func TestScenarios(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.start(t, nil)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){
			"one-shot":          oneShot,
			"failures":          failures,
			"missing-reference": missingReferences,
			"secret-key":        secretKey,
			"config-key":        configKey,
			"access":            access,
			"escalation":        escalation,
			"takeover":          takeover,
			"config-taken":      takenConfig,
			"config-change":     configChange,
			"redeploy":          redeploys,
			"revoke":            revokes,
			"unlabelled":        unlabelled,
			"suspend":           suspended,
			"switch":            switches,
			"persist":           persists,
			"delete":            deletes,
			"refused":           refusedDelete,
			"delete-isolated":   deletesIsolated,
			"network":           network,
			"wait":              waits,
			"rerun":             reruns,
			"cron":              schedules,
			"vanished":          vanishes,
			"edits":             edits,
			"collision-a-b":     collision,
			"tokens":            tokens,
			"expanded":          expanded,
			"bad-input":         badInput,
			"unschedulable":     unschedulable,
			"unbound":           unbound,
			"finished":          finished,
			"beside":            beside,
			"placed":            placed,
			"frozen":            frozen,
			"unmade":            unmade,
		} {
			t.Run(name, func(t *testing.T) {
				if testing.Short() && name != "one-shot" && name != "access" {
					t.Skip("long: one scenario of many")
				}
				t.Parallel()
				scenario(c.bench(t, "s-"+name))
			})
		}
	})
}

// oneShot is D1.
func oneShot(b *bench) {
	b.job("job", ", model: opus")
	b.phase("job", "Succeeded")
	require.Equal(b, "0", b.status("job", "lastRun.exitCode"))
	for _, field := range []string{"lastRunTime", "lastCompletionTime", "lastRun.started", "lastRun.finished"} {
		require.NotEmpty(b, b.status("job", field), field)
	}
	require.Equal(b, "True", b.condition("job", "Ready", "status"))
	hash := b.status("job", "configHash")
	require.Len(b, hash, 16)
	require.Equal(b, "job-config-"+hash, b.names("configmaps", "job"))
	require.Equal(b, "job-runner", b.names("serviceaccounts", "job"))
	require.Len(b, b.created("job"), 1)
	require.Equal(b, b.status("job", "lastRun.job"), b.names("jobs", "job"))
	var config struct{ Prompt, Model string }
	require.NoError(b, json.Unmarshal([]byte(b.in("get", "configmap", "job-config-"+hash, "-o", `jsonpath={.data.agent\.json}`)), &config))
	require.Equal(b, "work", config.Prompt)
	require.Equal(b, "opus", config.Model)
	uid := b.in("get", "aj", "job", "-o", "jsonpath={.metadata.uid}")
	selector := "app.kubernetes.io/managed-by=thurkube,thurkube.thurbeen.eu/agentjob=job,thurkube.thurbeen.eu/agentjob-namespace=" + b.name + ",thurkube.thurbeen.eu/owner-uid=" + uid
	require.Len(b, strings.Fields(b.in("get", "cm,sa,job,pod", "-l", selector, "-o", "name")), 4)
	b.eventually("the Job is let go", func() bool {
		return b.in("get", "jobs", "-l", selector, "-o", "jsonpath={.items[0].metadata.finalizers}") == ""
	})
	require.Contains(b, strings.Fields(b.in("get", "events", "-o", `jsonpath={.items[?(@.involvedObject.name=="job")].reason}`)), "Reconciled")
}

// failures is D8.
func failures(b *bench) {
	for name, c := range map[string]struct{ image, more, reason, code string }{
		"code":     {"exit-3", "", "Error", "3"},
		"memory":   {"oom", "", "OOMKilled", "137"},
		"deadline": {"hang", ", timeoutSeconds: 2", "Deadline", ""},
		"image":    {"missing", ", timeoutSeconds: 6", "ImagePull", ""},
		"evicted":  {"evicted", "", "Evicted", ""},
	} {
		b.apply("AgentRuntime", name, "{image: 'agent:"+c.image+"', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
		b.apply("AgentJob", name, "{runtimeRef: "+name+", authRef: auth, roleRef: role, prompt: work"+c.more+"}")
		b.phase(name, "Failed")
		require.Equal(b, c.reason, b.status(name, "lastRun.reason"), name)
		require.Equal(b, c.code, b.status(name, "lastRun.exitCode"), name)
		require.Equal(b, "False", b.condition(name, "Ready", "status"), name)
		require.Equal(b, "RunFailed", b.condition(name, "Ready", "reason"), name)
		require.Len(b, b.created(name), 1, name)
	}
}

// missingReferences is D9.
func missingReferences(b *bench) {
	b.apply("AgentJob", "job", "{runtimeRef: later, authRef: auth, roleRef: late, skillRef: skill, prompt: work}")
	b.eventually("all are named", func() bool {
		message := b.condition("job", "Ready", "message")
		return b.condition("job", "Ready", "reason") == "ResolveFailed" &&
			strings.Contains(
				message,
				`AgentRuntime "later": NotFound`,
			) && strings.Contains(message, `AgentRole "late": NotFound`) && strings.Contains(message, `AgentSkill "skill": NotFound`)
	})
	require.Equal(b, "Pending", b.status("job", "phase"))
	require.Empty(b, b.names("cm,sa,job", "job"))
	b.apply("AgentRole", "late", "{allowedTools: []}")
	b.eventually("two are left", func() bool { return !strings.Contains(b.condition("job", "Ready", "message"), "AgentRole") })
	b.apply("AgentSkill", "skill", "{repo: owner/repo, name: skill}")
	b.eventually("one is left", func() bool { return !strings.Contains(b.condition("job", "Ready", "message"), "AgentSkill") })
	require.Empty(b, b.created("job"))
	b.apply("AgentRuntime", "later", "{image: 'agent:1', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
	b.phase("job", "Succeeded")
}

// secretKey is D11.
func secretKey(b *bench) {
	b.apply("AgentAuth", "other", "{secretRef: {name: auth, key: second}}")
	b.apply("AgentJob", "job", "{runtimeRef: runtime, authRef: other, roleRef: role, prompt: work}")
	b.eventually("the key is named", func() bool {
		return strings.Contains(b.condition("job", "Resolved", "message"), `Secret "auth", key "second": KeyMissing`)
	})
	require.Empty(b, b.created("job"))
	b.in("patch", "secret", "auth", "--type=merge", "-p", `{"stringData":{"second":"another-s3cret"}}`)
	b.phase("job", "Succeeded")
}

// configKey is C12 and C13 for ConfigMaps: a missing key is named before a pod is made, and
// an object that appears, changes or is deleted wakes the jobs that use it.
func configKey(b *bench) {
	b.job(
		"job",
		", env: [{name: REGION, valueFrom: {configMapKeyRef: {name: site, key: region}}}], envFrom: [{configMapRef: {name: flags}}, {configMapRef: {name: never, optional: true}}]",
	)
	named := func(all ...string) {
		b.Helper()
		b.eventually("these are named", func() bool {
			return b.condition("job", "Resolved", "message") == strings.Join(all, "; ") && b.status("job", "phase") == "Pending"
		})
		require.Empty(b, b.created("job"))
	}
	named(`ConfigMap "site": NotFound`, `ConfigMap "flags": NotFound`)
	b.in("create", "configmap", "flags")
	named(`ConfigMap "site": NotFound`)
	b.in("create", "configmap", "site", "--from-literal=other=1")
	named(`ConfigMap "site", key "region": KeyMissing`)
	b.in("patch", "configmap", "site", "--type=merge", "-p", `{"binaryData":{"region":"ZXU="}}`)
	b.phase("job", "Succeeded")
	b.job("cron", ", schedule: '0 0 1 1 *', envFrom: [{configMapRef: {name: flags}}]")
	b.phase("cron", "Scheduled")
	b.in("delete", "configmap", "flags")
	b.eventually("it is held back", func() bool {
		return b.in("get", "cronjob", "cron", "-o", "jsonpath={.spec.suspend}") == "true" &&
			b.condition("cron", "Ready", "reason") == "ResolveFailed"
	})
	require.Len(b, b.created("job"), 1)
}

// access is D3 and D12.
func access(b *bench) {
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ceiling-`+b.name+`, labels: {thurkube.thurbeen.eu/aggregate-to-ceiling: "true"}}, rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]}`,
		),
	)
	b.eventually("the ceiling is raised", func() bool {
		return strings.Contains(b.kubectl("get", "clusterrole", agentjob.Ceiling, "-o", "jsonpath={.rules}"), "nodes")
	})
	b.image("hang")
	b.apply("ClusterAccess", "nodes", "{rules: [{apiGroups: [''], resources: [nodes], verbs: [list]}]}")
	b.job("job", ", clusterAccessRef: nodes")
	b.phase("job", "Running")
	account := "system:serviceaccount:" + b.name + ":job-runner"
	can := func(verb, resource string) bool {
		out, _ := b.cluster.Kubectl(b.Context(), "auth", "can-i", verb, resource, "--as="+account)
		return strings.TrimSpace(out) == "yes"
	}
	require.True(b, can("list", "nodes"))
	require.False(b, can("get", "nodes"))
	require.False(b, can("list", "secrets"))
	require.Equal(b, "true", b.in("get", "pods", "-o", "jsonpath={.items[0].spec.automountServiceAccountToken}"))
	require.Equal(b, "True", b.condition("job", "AccessReady", "status"))
	b.job("job", "")
	b.eventually("the rights are gone", func() bool { return !can("list", "nodes") })
	b.eventually("so are the objects", func() bool {
		out := b.kubectl("get", "clusterroles,clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name")
		return out == ""
	})
	b.eventually("another run has no token", func() bool {
		return b.in("get", "pods", "-o", "jsonpath={.items[*].spec.automountServiceAccountToken}") == "false"
	})

	// Nothing is bound to an account that another manager has made.
	b.in("create", "serviceaccount", "theirs-runner")
	b.job("theirs", ", clusterAccessRef: nodes")
	b.eventually("the name is taken", func() bool { return b.condition("theirs", "Ready", "reason") == "NameTaken" })
	require.Empty(b, b.kubectl("get", "clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"))
}

// escalation is D15.
func escalation(b *bench) {
	b.apply("ClusterAccess", "all", "{rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}")
	b.job("job", ", clusterAccessRef: all")
	denied := func() bool { return b.condition("job", "AccessReady", "reason") == "AccessDenied" }
	b.eventually("the namespace is refused", denied)
	require.Contains(b, b.condition("job", "AccessReady", "message"), "allow-cluster-access")
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	b.eventually("the rule is refused", func() bool {
		return denied() &&
			strings.Contains(b.condition("job", "AccessReady", "message"), "more than the ceiling, ClusterRole "+agentjob.Ceiling+": * *.*")
	})
	require.Contains(b, b.condition("job", "AccessReady", "message"), agentjob.LabelCeiling+"=true")
	require.Empty(b, b.kubectl("get", "clusterroles", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"))
	require.Empty(b, b.created("job"))
	require.Equal(b, "Pending", b.status("job", "phase"))
}

// takeover is D17.
func takeover(b *bench) {
	b.in("create", "serviceaccount", "job-runner")
	before := b.in("get", "serviceaccount", "job-runner", "-o", "yaml")
	b.job("job", "")
	b.eventually("the name is taken", func() bool { return b.condition("job", "Ready", "reason") == "NameTaken" })
	require.Equal(b, "Failed", b.status("job", "phase"))
	require.Equal(b, before, b.in("get", "serviceaccount", "job-runner", "-o", "yaml"))
	require.Empty(b, b.created("job"))

	b.in("create", "serviceaccount", "claimed-runner")
	b.in("label", "serviceaccount", "claimed-runner", "app.kubernetes.io/managed-by=thurkube", "thurkube.thurbeen.eu/owner-uid=0f0f")
	before = b.in("get", "serviceaccount", "claimed-runner", "-o", "yaml")
	b.job("claimed", "")
	b.eventually("that of another job, too", func() bool { return b.condition("claimed", "Ready", "reason") == "NameTaken" })
	require.Equal(b, "Failed", b.status("claimed", "phase"))
	require.Equal(b, before, b.in("get", "serviceaccount", "claimed-runner", "-o", "yaml"))
	require.Empty(b, b.created("claimed"))

	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: volume-data, namespace: `+b.name+`}, spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		),
	)
	b.job("volume", ", persist: true, storage: {size: 2Gi}")
	b.eventually("that of a volume, too", func() bool { return b.condition("volume", "Ready", "reason") == "NameTaken" })
	require.Equal(b, "1Gi ", b.in("get", "pvc", "volume-data", "-o", "jsonpath={.spec.resources.requests.storage} {.metadata.labels}"))
	require.Empty(b, b.created("volume"))
}

// configChange is D5 and D6.
func configChange(b *bench) {
	b.image("hang")
	b.job("job", "")
	b.phase("job", "Running")
	first := b.created("job")
	require.Len(b, first, 1)
	hash := b.status("job", "configHash")
	b.apply("AgentJob", "job", "{runtimeRef: runtime, authRef: auth, roleRef: role, prompt: other work}")
	b.eventually("another run", func() bool { return len(b.created("job")) == 2 })
	b.eventually("the old one is gone", func() bool { return b.names("jobs", "job") == b.created("job")[1] })
	require.NotEqual(b, hash, b.status("job", "configHash"))
	require.Contains(b, b.in("describe", "aj", "job"), b.status("job", "configHash"))
	b.eventually("its config too", func() bool { return b.names("configmaps", "job") == "job-config-"+b.status("job", "configHash") })
	b.image("2")
	b.phase("job", "Succeeded")
	require.Len(b, b.created("job"), 3)
}

// takenConfig is C7 for a config object: another's object is left alone, and it is not
// mounted.
func takenConfig(b *bench) {
	b.image("hang")
	b.job("first", "")
	b.phase("first", "Running")
	name := "job-config-" + b.status("first", "configHash")
	b.in("create", "configmap", name, "--from-literal=agent.json={}")
	before := b.in("get", "configmap", name, "-o", "yaml")
	b.job("job", "")
	b.eventually("the name is taken", func() bool { return b.condition("job", "Ready", "reason") == "NameTaken" })
	require.Equal(b, "Failed", b.status("job", "phase"))
	require.Equal(b, "False", b.condition("job", "Ready", "status"))
	require.Contains(b, b.condition("job", "Ready", "message"), "ConfigMap/"+b.name+"/"+name+" exists and is not of this job")
	require.Equal(b, before, b.in("get", "configmap", name, "-o", "yaml"))
	require.Empty(b, b.created("job"))
	b.in("delete", "configmap", name)
	b.phase("job", "Running") // the name is asked for again
	require.Equal(b, name, b.names("configmaps", "job"))
}

// redeploys is D6. That it takes less than 5 s is a matter of what it waits for: one pass
// records, lets go and deletes the old run, and the event of its end starts the pass that
// makes the new one. Nothing waits for a timer, and nothing is sent for other jobs.
func redeploys(b *bench) {
	b.image("hang")
	b.apply("AgentRuntime", "other", "{image: 'agent:hang', authEnvVar: AGENT_TOKEN, configPath: /etc/agent, persistPath: /data}")
	b.apply("AgentJob", "bystander", "{runtimeRef: other, authRef: auth, roleRef: role, prompt: work}")
	users := []string{"a", "b"}
	for _, name := range users {
		b.job(name, "")
	}
	for _, name := range append(users, "bystander") {
		b.phase(name, "Running")
	}
	before := len(b.writes())
	b.image("2")
	for _, name := range users {
		b.phase(name, "Succeeded")
	}
	all := b.writes()[before:]
	for _, name := range users {
		runs := b.created(name)
		require.Len(b, runs, 2, name)
		var sent []string
		for _, w := range all {
			if strings.HasSuffix(w, " "+name) || strings.Contains(w, " "+name+"-") {
				sent = append(sent, w)
			}
		}
		status := "patch agentjobs/status " + name
		require.Equal(b, status, sent[0], "what ends the run is recorded first")
		sent = slices.DeleteFunc(sent, func(w string) bool { return w == status })
		deleted, created := slices.Index(sent, "delete jobs "+runs[0]), slices.Index(sent, "create jobs "+runs[1])
		require.True(b, deleted >= 0 && deleted < created, "the old run is deleted before the new one is made: %v", sent)
		for _, w := range sent { // beside these, a finalizer is taken from each
			require.Contains(b, []string{"delete jobs " + runs[0], "patch jobs " + runs[0], "create jobs " + runs[1], "patch jobs " + runs[1]}, w)
		}
		require.LessOrEqual(b, len(sent), 4, "once each: %v", sent)
	}
	for _, w := range all {
		require.NotContains(b, w, "bystander")
	}
	require.Equal(b, "Running", b.status("bystander", "phase"))
}

// revokes is C4 and D12 for what takes the time: the pass that sees the change deletes the
// binding and the role before it does anything else. It waits for nothing, also not for the
// run, which goes on under "onChange: Wait".
func revokes(b *bench) {
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	b.image("hang")
	b.apply("ClusterAccess", "none", "{rules: []}")
	b.job("job", ", clusterAccessRef: none, onChange: Wait")
	b.phase("job", "Running")
	before := len(b.writes())
	b.job("job", ", onChange: Wait")
	b.eventually("the condition goes with the rights", func() bool { return b.condition("job", "AccessReady", "status") == "" })
	role := "thurkube:" + b.name + ":job"
	writes := b.writes()[before:]
	require.Equal(b, []string{"delete clusterrolebindings " + role, "delete clusterroles " + role}, writes[:2])
	for _, w := range writes[2:] { // the remaining children may be seen a moment later
		require.Equal(b, "patch agentjobs/status job", w)
	}
	require.Empty(
		b,
		b.kubectl("get", "clusterroles,clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"),
	)
	require.Equal(b, "Running", b.status("job", "phase"))
}

// unlabelled is C7 for the Job of a run: without its labels no watch shows it, and it is
// not taken for deleted.
func unlabelled(b *bench) {
	b.image("hang")
	b.job("job", "")
	b.phase("job", "Running")
	run := b.status("job", "lastRun.job")
	labels := func() string { return b.in("get", "job", run, "-o", "jsonpath={.metadata.labels}") }
	before := labels()
	b.in("label", "job", run, "thurkube.thurbeen.eu/owner-uid-")
	b.eventually("the label is back", func() bool { return labels() == before })
	b.in("delete", "pods", "--all")
	b.phase("job", "Failed")
	require.Equal(b, "Error", b.status("job", "lastRun.reason"))
	require.Len(b, b.created("job"), 1)
}

// suspended is D19.
func suspended(b *bench) {
	b.image("hang")
	b.job("job", "")
	b.phase("job", "Running")
	b.job("job", ", suspend: true")
	b.job("held", ", suspend: true")
	b.phase("held", "Suspended")
	require.Equal(b, "Running", b.status("job", "phase"))
	b.image("1") // it is suspended: nothing is replaced
	b.in("delete", "pods", "-l", "thurkube.thurbeen.eu/agentjob=job")
	b.eventually("the run ends", func() bool { return b.status("job", "lastRun.outcome") == "Failed" })
	require.Len(b, b.created("job"), 1)
	require.Empty(b, b.created("held"))
	b.job("held", "")
	b.phase("held", "Succeeded")
}

// switches is D13.
func switches(b *bench) {
	b.image("hang")
	b.job("job", "")
	b.phase("job", "Running")
	b.job("job", ", schedule: '0 0 1 1 *', timezone: Europe/Berlin")
	b.phase("job", "Scheduled")
	b.eventually("the Job is gone", func() bool { return b.names("jobs", "job") == "" })
	require.Equal(b, "Europe/Berlin", b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.timeZone}"))
	b.image("1")
	b.job("job", "")
	b.phase("job", "Succeeded")
	require.Empty(b, b.names("cronjobs", "job"))
	require.Len(b, b.created("job"), 2)
}

// persists is D4 and D28.
func persists(b *bench) {
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+b.name+`}, spec: {capacity: {storage: 9Gi}, accessModes: [ReadWriteOnce], storageClassName: `+b.name+`, hostPath: {path: /tmp/x}}}`,
		),
	)
	b.job("job", ", persist: true, storage: {size: 2Gi, className: "+b.name+"}")
	b.phase("job", "Succeeded")
	require.Equal(b, "2Gi", b.in("get", "pvc", "job-data", "-o", "jsonpath={.spec.resources.requests.storage}"))
	require.Contains(b, b.in("get", "pods", "-o", "jsonpath={.items[0].spec.volumes}"), "job-data")
	b.job("job", ", persist: true, storage: {size: 2Gi, className: "+b.name+"}, model: other")
	b.eventually("another run", func() bool { return len(b.created("job")) == 2 && b.status("job", "phase") == "Succeeded" })
	b.job("job", "")
	b.eventually("the volume goes", func() bool { return b.names("pvc", "job") == "" })
}

// deletes is D14.
func deletes(b *bench) {
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	b.image("hang")
	b.apply("ClusterAccess", "none", "{rules: []}")
	b.job("job", ", clusterAccessRef: none")
	b.phase("job", "Running")
	require.Len(
		b,
		strings.Fields(
			b.kubectl("get", "clusterroles,clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"),
		),
		2,
	)
	b.in("delete", "aj", "job", "--timeout=60s")
	require.Empty(
		b,
		b.kubectl("get", "clusterroles,clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"),
	)
	b.eventually("all of it is gone", func() bool { return b.names("cm,sa,job,pod", "job") == "" })
}

// deletesIsolated is D14 for an agent that does not end at once: its network policy outlives it.
func deletesIsolated(b *bench) {
	b.image("hang")
	b.job("job", ", networkPolicy: {egress: [{ports: [{port: 443}]}]}")
	b.phase("job", "Running")
	pod := b.in("get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
	finalizers := func(list string) {
		b.in("patch", "pod", pod, "--type=merge", "-p", `{"metadata":{"finalizers":`+list+`}}`)
	}
	finalizers(`["example.com/slow"]`)
	b.in("delete", "aj", "job", "--wait=false")
	b.eventually(
		"its pod is told to end",
		func() bool { return b.in("get", "pod", pod, "-o", "jsonpath={.metadata.deletionTimestamp}") != "" },
	)
	require.Equal(b, "job", b.names("networkpolicies", "job"))
	finalizers("null")
	b.eventually("all of it is gone", func() bool { return b.names("networkpolicies,cm,sa,job,pod,aj", "job") == "" })
}

// refusedDelete is the end of D14, and C5: a role that the API server does not delete keeps
// the job, with the reason in its status, and no other's finalizer is lost.
func refusedDelete(b *bench) {
	b.kubectl("label", "namespace", b.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	role := "thurkube:" + b.name + ":job"
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: `+b.name+`}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], resources: [clusterroles], operations: [DELETE]}]},
  matchConditions: [{name: one, expression: "oldObject.metadata.name == '`+role+`'"}], validations: [{expression: "false", message: "roles are under audit"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: `+b.name+`}, spec: {policyName: `+b.name+`, validationActions: [Deny]}}
`,
		),
	)
	b.apply("ClusterAccess", "none", "{rules: []}")
	b.job("job", ", clusterAccessRef: none")
	b.phase("job", "Succeeded")
	b.in("patch", "aj", "job", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/other"}]`)
	b.eventually("the policy is in force", func() bool {
		_, err := b.cluster.Kubectl(b.Context(), "delete", "clusterrole", role, "--dry-run=server")
		return err != nil
	})
	b.in("delete", "aj", "job", "--wait=false")
	b.eventually("the status says why", func() bool { return strings.Contains(b.status("job", "message"), "roles are under audit") })
	finalizers := func() string { return b.in("get", "aj", "job", "-o", "jsonpath={.metadata.finalizers}") }
	require.Contains(b, finalizers(), "thurkube.thurbeen.eu/finalizer")
	require.Contains(b, finalizers(), "example.com/other")
	b.kubectl("delete", "validatingadmissionpolicybinding", b.name)
	b.kubectl("delete", "validatingadmissionpolicy", b.name)
	b.eventually("it is let go", func() bool { return finalizers() == `["example.com/other"]` })
	require.Empty(
		b,
		b.kubectl("get", "clusterroles,clusterrolebindings", "-l", "thurkube.thurbeen.eu/agentjob-namespace="+b.name, "-o", "name"),
	)
	b.in("patch", "aj", "job", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// network is C25: a NetworkPolicy of the job's pods alone, and scratch volumes of a bounded
// size.
func network(b *bench) {
	b.job("job", ", networkPolicy: {egress: [{ports: [{port: 443}]}]}")
	b.phase("job", "Succeeded")
	uid := b.in("get", "aj", "job", "-o", "jsonpath={.metadata.uid}")
	require.Equal(b, "job "+uid+" [\"Ingress\",\"Egress\"] 443", b.in(
		"get",
		"networkpolicies",
		"-o",
		`jsonpath={.items[*].metadata.name} {.items[*].spec.podSelector.matchLabels.thurkube\.thurbeen\.eu/owner-uid} {.items[*].spec.policyTypes} {.items[*].spec.egress[*].ports[*].port}`,
	))
	require.Equal(b, "1", b.in("get", "pods", "-l", "thurkube.thurbeen.eu/owner-uid="+uid, "-o", "go-template={{len .items}}"))
	require.Equal(b, "1Gi 1Gi", b.in("get", "pods", "-o", `jsonpath={.items[0].spec.volumes[?(@.emptyDir)].emptyDir.sizeLimit}`))
	require.Equal(
		b,
		"/tmp /home/agent",
		b.in(
			"get",
			"pods",
			"-o",
			`jsonpath={.items[0].spec.containers[0].volumeMounts[?(@.name=="tmp")].mountPath} {.items[0].spec.containers[0].volumeMounts[?(@.name=="home")].mountPath}`,
		),
	)
	b.job("job", "")
	b.eventually("it goes with its field", func() bool { return b.names("networkpolicies", "job") == "" })
}

// waits is C3 for onChange: Wait lets a run end before the next, Keep has no next.
func waits(b *bench) {
	b.image("hang")
	b.job("wait", ", onChange: Wait")
	b.job("keep", ", onChange: Keep")
	b.phase("wait", "Running")
	b.phase("keep", "Running")
	hash := b.status("wait", "configHash")
	b.job("wait", ", onChange: Wait, model: other")
	b.job("keep", ", onChange: Keep, model: other")
	for _, name := range []string{"wait", "keep"} {
		b.eventually("the change is seen", func() bool { return b.status(name, "configHash") != hash })
		require.Len(b, b.created(name), 1)
		require.Equal(b, "Running", b.status(name, "phase"))
		b.in("delete", "pods", "-l", "thurkube.thurbeen.eu/agentjob="+name)
	}
	b.eventually("the next one starts", func() bool { return len(b.created("wait")) == 2 && b.status("wait", "phase") == "Running" })
	b.phase("keep", "Failed")
	require.Len(b, b.created("keep"), 1)
}

// reruns is D7 without the restart.
func reruns(b *bench) {
	b.job("job", "")
	b.phase("job", "Succeeded")
	b.in("delete", "jobs", "--all", "--timeout=60s")
	b.in("annotate", "aj", "job", "note=1")
	b.in("annotate", "aj", "job", "thurkube.thurbeen.eu/rerun=1")
	b.eventually("one more run", func() bool {
		return len(b.created("job")) == 2 && b.status("job", "phase") == "Succeeded" && b.status("job", "lastRun.rerun") == "1"
	})
	b.in("delete", "jobs", "--all", "--timeout=60s")
	b.in("annotate", "aj", "job", "note=2", "--overwrite")
	b.job("marker", "")
	b.phase("marker", "Succeeded")
	require.Len(b, b.created("job"), 2)
}

// schedules is D2.
func schedules(b *bench) {
	b.job("job", ", schedule: '*/1 * * * *', timezone: Europe/Berlin")
	b.phase("job", "Scheduled")
	require.Equal(b, "*/1 * * * * Europe/Berlin Forbid false 3 3", b.in(
		"get",
		"cronjob",
		"job",
		"-o",
		"jsonpath={.spec.schedule} {.spec.timeZone} {.spec.concurrencyPolicy} {.spec.suspend} {.spec.successfulJobsHistoryLimit} {.spec.failedJobsHistoryLimit}",
	))
	b.eventually("it runs", func() bool {
		return b.status("job", "lastSuccessfulTime") != "" && b.status("job", "lastCompletionTime") != ""
	})
	require.NotEmpty(b, b.status("job", "lastRunTime"))
	require.Equal(b, "Scheduled", b.status("job", "phase"))
	require.Empty(b, b.created("job"), "its runs are those of the CronJob")
	template := b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.jobTemplate}")
	b.job("job", ", schedule: '*/1 * * * *', timezone: Europe/Berlin, model: other")
	b.eventually(
		"the template follows",
		func() bool { return b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.jobTemplate}") != template },
	)
	b.job("job", ", schedule: '*/1 * * * *', suspend: true")
	b.phase("job", "Suspended")
	require.Equal(b, "true", b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.suspend}"))
}

// vanishes is D10.
func vanishes(b *bench) {
	b.job("job", ", schedule: '0 0 1 1 *'")
	b.phase("job", "Scheduled")
	hash, owned := b.status("job", "configHash"), b.status("job", "owned")
	b.in("delete", "agentrole", "role")
	held := func() string { return b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.suspend}") }
	b.eventually("it is held back", func() bool { return held() == "true" && b.condition("job", "Ready", "reason") == "ResolveFailed" })
	require.Equal(b, hash, b.status("job", "configHash"))
	require.Equal(b, owned, b.status("job", "owned"))
	b.apply("AgentRole", "role", "{allowedTools: ['Bash(git *)', Read]}")
	b.eventually("it goes on", func() bool { return held() == "false" && b.status("job", "phase") == "Scheduled" })
}

// edits is D18.
func edits(b *bench) {
	b.job("job", ", schedule: '0 0 1 1 *'")
	b.phase("job", "Scheduled")
	const image = "jsonpath={.spec.jobTemplate.spec.template.spec.containers[0].image}"
	b.in("annotate", "cronjob", "job", "example.com/note=kept")
	b.in(
		"patch",
		"cronjob",
		"job",
		"--type=json",
		"-p",
		`[{"op":"replace","path":"/spec/jobTemplate/spec/template/spec/containers/0/image","value":"wrong"}]`,
	)
	b.eventually("the image is back", func() bool { return b.in("get", "cronjob", "job", "-o", image) == "agent:1" })
	require.Equal(b, "kept", b.in("get", "cronjob", "job", "-o", `jsonpath={.metadata.annotations.example\.com/note}`))
	b.eventually("it is said", func() bool {
		notes := b.in("get", "events.events.k8s.io", "-o", `jsonpath={.items[?(@.reason=="OverrideUndone")].note}`)
		return notes == "CronJob.batch/"+b.name+`/job: .spec.jobTemplate.spec.template.spec.containers[name="agent"].image was changed by kubectl-patch; set back`
	})
	config := b.names("configmaps", "job")
	b.in("delete", "configmap", config)
	b.eventually("the config is back", func() bool { return b.names("configmaps", "job") == config })

	b.image("hang")
	b.job("runs", "")
	b.phase("runs", "Running")
	config = b.names("configmaps", "runs")
	uid := func() string {
		return b.in("get", "configmaps", "-l", "thurkube.thurbeen.eu/agentjob=runs", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	data := b.in("get", "configmap", config, "-o", "jsonpath={.data} {.immutable}")
	was := uid()
	b.in("delete", "configmap", config)
	b.eventually("the config of a run is back", func() bool { return uid() != was && b.names("configmaps", "runs") == config })
	require.Equal(b, data, b.in("get", "configmap", config, "-o", "jsonpath={.data} {.immutable}"))
	b.in("annotate", "aj", "runs", "example.com/note=1")
	b.job("marker", ", suspend: true")
	b.phase("marker", "Suspended")
	require.Equal(b, "Running", b.status("runs", "phase"))
	require.Len(b, b.created("runs"), 1, "the run is not started again")
	require.Equal(b, b.created("runs")[0], b.names("jobs", "runs"))
}

// collision is D16: the namespaces s-collision-a-b and s-collision-a have jobs whose
// joined names are the same.
func collision(b *bench) {
	other := b.bench(b.T, "s-collision-a")
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ceiling-collision, labels: {thurkube.thurbeen.eu/aggregate-to-ceiling: "true"}}, rules: [{apiGroups: [""], resources: [services, endpoints], verbs: [get]}]}`,
		),
	)
	b.eventually("the ceiling is raised", func() bool {
		return strings.Contains(b.kubectl("get", "clusterrole", agentjob.Ceiling, "-o", "jsonpath={.rules}"), "endpoints")
	})
	for _, in := range []*bench{b, other} {
		in.kubectl("label", "namespace", in.name, "thurkube.thurbeen.eu/allow-cluster-access=true")
	}
	b.apply("ClusterAccess", "access", "{rules: [{apiGroups: [''], resources: [services], verbs: [get]}]}")
	other.apply("ClusterAccess", "access", "{rules: [{apiGroups: [''], resources: [endpoints], verbs: [get]}]}")
	b.job("c", ", clusterAccessRef: access")
	other.job("b-c", ", clusterAccessRef: access")
	b.phase("c", "Succeeded")
	other.phase("b-c", "Succeeded")
	require.Equal(
		b,
		"services c-runner "+b.name,
		b.kubectl("get", "clusterrole", "thurkube:"+b.name+":c", "-o", "jsonpath={.rules[0].resources[0]}")+" "+
			b.kubectl("get", "clusterrolebinding", "thurkube:"+b.name+":c", "-o", "jsonpath={.subjects[0].name} {.subjects[0].namespace}"),
	)
	require.Equal(
		b,
		"endpoints b-c-runner "+other.name,
		b.kubectl("get", "clusterrole", "thurkube:"+other.name+":b-c", "-o", "jsonpath={.rules[0].resources[0]}")+" "+
			b.kubectl("get", "clusterrolebinding", "thurkube:"+other.name+":b-c", "-o", "jsonpath={.subjects[0].name} {.subjects[0].namespace}"),
	)
}

// tokens is D21.
func tokens(b *bench) {
	b.in("create", "secret", "generic", "github", "--from-literal=token=g1thub-s3cret", "--from-literal=headers=h3ader-s3cret")
	b.apply("Repository", "code", "{owner: owner, name: repo, tokenSecretRef: {name: github, key: token}}")
	b.apply("McpServer", "tools", "{url: 'https://mcp.example.com', headersSecretRef: {name: github, key: headers}}")
	b.job("job", ", repositoryRefs: [code], mcpServerRefs: [tools]")
	b.phase("job", "Succeeded")
	config := b.in("get", "configmaps", "-l", "thurkube.thurbeen.eu/agentjob=job", "-o", `jsonpath={.items[0].data.agent\.json}`)
	require.Contains(b, config, `"tokenFile": "/var/run/thurkube/repos/code/token"`)
	require.Contains(b, config, `"headersFile": "/var/run/thurkube/mcp/tools/headers.json"`)
	volumes := b.in("get", "pods", "-o", "jsonpath={.items[0].spec.volumes}")
	require.Contains(b, volumes, `{"items":[{"key":"token","path":"code/token"}],"name":"github"}`)
	for _, kinds := range []string{"configmaps", "events", "aj", "pods", "jobs"} {
		require.NotContains(b, b.in("get", kinds, "-o", "yaml"), "s3cret", kinds)
	}
}

// expanded is D28.
func expanded(b *bench) {
	class := b.name
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: `+class+`}, provisioner: kubernetes.io/no-provisioner, allowVolumeExpansion: true}`,
		),
	)
	require.NoError(
		b,
		b.cluster.Apply(
			b.Context(),
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+class+`}, spec: {capacity: {storage: 9Gi}, accessModes: [ReadWriteOnce], storageClassName: `+class+`, hostPath: {path: /tmp/x}}}`,
		),
	)
	job := func(size, more string) {
		b.job("job", ", persist: true, storage: {size: "+size+", className: "+class+"}"+more)
	}
	job("1Gi", "")
	b.phase("job", "Succeeded")
	size := func() string {
		return b.in("get", "pvc", "job-data", "-o", "jsonpath={.spec.resources.requests.storage}")
	}
	b.in("patch", "pvc", "job-data", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}`)
	job("2Gi", ", model: other")
	b.eventually("another run", func() bool { return len(b.created("job")) == 2 && b.status("job", "phase") == "Succeeded" })
	require.Equal(b, "5Gi", size(), "it never shrinks")
	job("7Gi", ", model: other")
	b.eventually("it grows", func() bool { return size() == "7Gi" })
	require.Equal(b, "True", b.condition("job", "Ready", "status"))
	require.Len(b, b.created("job"), 2, "a size is no reason for a run")
}

// badInput is the part of D20 that admission does not see.
func badInput(b *bench) {
	b.job("zone", ", schedule: '0 0 1 1 *', timezone: Mars/Olympus")
	b.job("token", ", env: [{name: AGENT_TOKEN, value: mine}]")
	b.job("backwards", ", schedule: '5-3 * * * *'")
	for name, why := range map[string]string{"zone": "spec.timezone", "token": "AGENT_TOKEN", "backwards": "spec.schedule"} {
		b.eventually(name+" is invalid", func() bool {
			return b.condition(name, "Ready", "reason") == "InvalidSpec" && strings.Contains(b.status(name, "message"), why)
		})
		require.Equal(b, "Failed", b.status(name, "phase"))
		require.Empty(b, b.names("cm,sa,job,cronjob", name))
	}
}
