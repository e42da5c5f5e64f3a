package operator_test

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// unschedulable is D33: Ready has the words of the scheduler, and a node that fits ends it.
func unschedulable(b *bench) {
	b.job("job", ", nodeSelector: {disk: none}")
	b.eventually("it is unschedulable", func() bool { return b.condition("job", "Ready", "reason") == "Unschedulable" })
	require.Equal(b, "False", b.condition("job", "Ready", "status"))
	require.Contains(b, b.condition("job", "Ready", "message"), "0/3 nodes are available")
	require.Equal(b, "Pending", b.status("job", "phase"))
	require.Contains(b, b.status("job", "message"), "0/3 nodes are available")
	require.Equal(b, "False", b.condition("job", "Finished", "status"))
	require.Contains(b, b.in("get", "aj", "job"), "Unschedulable")
	b.eventually("an Event says so", func() bool {
		return strings.Contains(b.in("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"), "Unschedulable")
	})
	b.job("job", "")
	b.phase("job", "Succeeded")
	require.Equal(b, "True", b.condition("job", "Ready", "status"))
	require.Equal(b, "True Succeeded", b.condition("job", "Finished", "status")+" "+b.condition("job", "Finished", "reason"))
}

// unbound is D33 for a claim without a volume, and for an image that cannot be pulled.
func unbound(b *bench) {
	b.job("claim", ", persist: true, storage: {className: none}")
	b.eventually("the claim is named", func() bool { return b.condition("claim", "Ready", "reason") == "VolumePending" })
	require.Contains(b, b.condition("claim", "Ready", "message"), "PersistentVolumeClaim")
	b.image("missing")
	b.job("image", "")
	b.eventually("the image is named", func() bool { return b.condition("image", "Ready", "reason") == "ImagePull" })
	require.Equal(b, "Pending", b.status("image", "phase"))
}

// finished is D34: kubectl waits for the end of a run, and not for the end of an earlier one.
func finished(b *bench) {
	b.image("hang")
	b.job("job", ", timeoutSeconds: 20")
	b.phase("job", "Running")
	require.Equal(b, "False Running", b.condition("job", "Finished", "status")+" "+b.condition("job", "Finished", "reason"))
	b.image("exit-3")
	b.in("wait", "--for=condition=Finished", "--timeout=60s", "aj/job")
	require.Equal(b, "Failed", b.condition("job", "Finished", "reason"))
	require.Contains(b, b.condition("job", "Finished", "message"), "exit code 3")
	require.Len(b, b.created("job"), 2)
	b.job("cron", ", schedule: '* * * * *'")
	b.in("wait", "--for=condition=Finished", "--timeout=120s", "aj/cron")
	require.Equal(b, "Failed", b.condition("cron", "Finished", "reason"))
}

// beside is D35: with a schedule, a new value of the annotation starts one run at once.
func beside(b *bench) {
	jobs := func() []string {
		return strings.Fields(b.in("get", "jobs", "-o", "jsonpath={.items[*].metadata.name}"))
	}
	b.job("job", ", schedule: '0 0 1 1 *'")
	b.phase("job", "Scheduled")
	require.Empty(b, jobs())
	for i, value := range []string{"a", "b"} {
		b.in("annotate", "aj", "job", "--overwrite", "thurkube.thurbeen.eu/rerun="+value)
		b.eventually("it has ended", func() bool {
			return b.status("job", "rerun") == value && b.condition("job", "Finished", "status") == "True"
		})
		require.Len(b, jobs(), i+1)
	}
	require.Equal(b, "job job", b.in("get", "jobs", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].name}"))
	require.Equal(b, "CronJob CronJob", b.in("get", "jobs", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].kind}"))
	require.NotEmpty(b, b.status("job", "lastSuccessfulTime"))
	// A second value waits for the run of the first, and Finished does for both.
	b.image("hang")
	b.in("annotate", "aj", "job", "--overwrite", "thurkube.thurbeen.eu/rerun=first")
	b.eventually("the first runs", func() bool {
		return b.status("job", "rerun") == "first" && b.condition("job", "Finished", "status") == "False"
	})
	b.in("annotate", "aj", "job", "--overwrite", "thurkube.thurbeen.eu/rerun=second")
	waited := make(chan error, 1)
	go func() {
		_, err := b.cluster.Kubectl(b.Context(), "wait", "--for=condition=Finished", "--timeout=90s", "aj/job", "-n", b.name)
		waited <- err
	}()
	b.end("job")
	b.eventually("the second runs", func() bool { return b.status("job", "rerun") == "second" })
	require.Empty(b, waited, "a run was due or under way all the time")
	b.end("job")
	require.NoError(b, <-waited)
	require.Empty(b, b.in("get", "jobs", "-o", "jsonpath={.items[*].status.active}"))
	b.image("1")
	// An earlier pass does not start it again, nor does a change of the job.
	b.in("delete", "jobs", "--all")
	b.job("job", ", schedule: '0 0 2 1 *'")
	b.eventually("the schedule is another", func() bool {
		return b.in("get", "cronjob", "job", "-o", "jsonpath={.spec.schedule}") == "0 0 2 1 *"
	})
	require.Empty(b, jobs())
	// Suspended, it waits.
	b.job("job", ", schedule: '0 0 2 1 *', suspend: true")
	b.phase("job", "Suspended")
	b.in("annotate", "aj", "job", "--overwrite", "thurkube.thurbeen.eu/rerun=c")
	b.job("job", ", schedule: '0 0 2 1 *', suspend: true, model: other")
	b.eventually("it has been seen", func() bool {
		return b.status("job", "observedGeneration") == b.in("get", "aj", "job", "-o", "jsonpath={.metadata.generation}")
	})
	require.Empty(b, jobs())
	b.job("job", ", schedule: '0 0 2 1 *', model: other")
	b.eventually("it runs", func() bool { return b.status("job", "rerun") == "c" })
	require.Len(b, jobs(), 1)
}

// unmade is C9 for a pod that the API server refuses.
func unmade(b *bench) {
	b.job("class", ", priorityClassName: nope")
	b.eventually("the class is named", func() bool { return b.condition("class", "Ready", "reason") == "Rejected" })
	require.Contains(b, b.condition("class", "Ready", "message"), "no PriorityClass with name nope was found")
	require.Equal(b, "Pending", b.status("class", "phase"))
	b.job("class", "")
	b.phase("class", "Succeeded")
	b.in("create", "quota", "none", "--hard=pods=0")
	b.eventually("the quota counts", func() bool { return b.in("get", "quota", "none", "-o", "jsonpath={.status.used}") != "" })
	b.job("quota", "")
	b.eventually("the quota is named", func() bool { return b.condition("quota", "Ready", "reason") == "Quota" })
	require.Contains(b, b.condition("quota", "Ready", "message"), "exceeded quota: none")
	b.in("delete", "quota", "none")
	b.eventually("it is no longer refused", func() bool { return b.condition("quota", "Ready", "status") == "True" })
	b.phase("quota", "Succeeded")
}

// end lets the pods of a job that run succeed.
func (b *bench) end(job string) {
	b.Helper()
	running := []string{"get", "pods", "-l", "thurkube.thurbeen.eu/agentjob=" + job, "--field-selector=status.phase=Running", "-o", "name"}
	b.eventually("a pod runs", func() bool { return b.in(running...) != "" })
	for pod := range strings.FieldsSeq(b.in(running...)) {
		b.in("patch", pod, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Succeeded"}}`)
	}
}

// placed is E4: where a run goes, and what its image and its account need.
func placed(b *bench) {
	b.image("hang")
	b.kubectl("create", "priorityclass", "low-"+b.name, "--value=-5")
	b.in("create", "secret", "docker-registry", "registry", "--docker-username=u", "--docker-password=p")
	b.job("job", `, imagePullSecrets: [{name: registry}], nodeSelector: {kubernetes.io/os: linux}, priorityClassName: low-`+b.name+
		`, tolerations: [{key: gpu, operator: Exists}], serviceAccountAnnotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::1:role/a'}`)
	b.phase("job", "Running")
	require.Equal(b, `[{"name":"registry"}] {"kubernetes.io/os":"linux"} -5`, b.in("get", "pods", "-o",
		"jsonpath={.items[0].spec.imagePullSecrets} {.items[0].spec.nodeSelector} {.items[0].spec.priority}"))
	require.Contains(b, b.in("get", "pods", "-o", "jsonpath={.items[0].spec.tolerations}"), `{"key":"gpu","operator":"Exists"}`)
	require.Equal(b, "arn:aws:iam::1:role/a",
		b.in("get", "sa", "job-runner", "-o", `jsonpath={.metadata.annotations.eks\.amazonaws\.com/role-arn}`))
	first := b.created("job")
	require.Len(b, first, 1)
	b.job("job", "")
	b.eventually("the run is another", func() bool { return len(b.created("job")) == 2 })
	b.phase("job", "Running")
	require.Empty(b, b.in("get", "sa", "job-runner", "-o", `jsonpath={.metadata.annotations.eks\.amazonaws\.com/role-arn}`))
}

// frozen is D35: what a volume cannot change is refused, with the field.
func frozen(b *bench) {
	refused := func(more, field string) {
		b.Helper()
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		_, err := b.cluster.Kubectl(ctx, "patch", "aj", "job", "-n", b.name, "--type=merge", "-p", `{"spec":{`+more+`}}`)
		require.ErrorContains(b, err, field)
		require.ErrorContains(b, err, "cannot be changed: the volume is there")
	}
	b.job("job", ", suspend: true, persist: true, storage: {className: fast}")
	refused(`"storage":{"className":"slow"}`, "spec.storage.className")
	refused(`"storage":{"className":null}`, "spec.storage.className")
	refused(`"storage":{"accessModes":["ReadWriteMany"]}`, "spec.storage.accessModes")
	b.in("patch", "aj", "job", "--type=merge", "-p", `{"spec":{"storage":{"size":"2Gi"}}}`)
	b.in("patch", "aj", "job", "--type=merge", "-p", `{"spec":{"persist":false}}`)
	b.in("patch", "aj", "job", "--type=merge", "-p", `{"spec":{"persist":true,"storage":{"className":"slow"}}}`)
	home := `{"spec":{"env":[{"name":"HOME","value":"/"}]}}`
	_, err := b.cluster.Kubectl(b.Context(), "patch", "aj", "job", "-n", b.name, "--type=merge", "-p", home)
	require.ErrorContains(b, err, "spec.env")
}
