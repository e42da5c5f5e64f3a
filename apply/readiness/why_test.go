package readiness_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// parse reads an object from YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object), text)
	return o
}

// podWith is a pod of the Deployment web with that status.
func podWith(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	return parse(t, `{apiVersion: v1, kind: Pod, metadata: {name: web-1, labels: {pod-template-hash: new}, `+
		`creationTimestamp: "2026-01-02T00:00:00Z"}, status: `+status+`}`)
}

// The statuses of pods are as a cluster has reported them, shortened.
const (
	noNode = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
		message: "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."}]}`
	gated = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated,
		message: "Scheduling is blocked due to non-empty scheduling gates"}]}`
	noVolume = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
		message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"}]}`
	noClaim = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
		message: 'persistentvolumeclaim "data" not found'}]}`
	noImage = `{phase: Pending, conditions: [{type: PodScheduled, status: "True"}], containerStatuses: [{name: main, ready: false, restartCount: 0,
		state: {waiting: {reason: ImagePullBackOff, message: 'Back-off pulling image "example.com/web:2"'}}}]}`
	badImage = `{phase: Pending, containerStatuses: [{name: main, ready: false,
		state: {waiting: {reason: InvalidImageName, message: "Failed to apply default image tag \"Web\""}}}]}`
	noSecret = `{phase: Pending, containerStatuses: [{name: main, ready: false,
		state: {waiting: {reason: CreateContainerConfigError, message: 'secret "db" not found'}}}]}`
	creating = `{phase: Pending, conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "False", reason: ContainersNotReady}],
		containerStatuses: [{name: main, ready: false, state: {waiting: {reason: ContainerCreating}}}]}`
	looping = `{phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: main, ready: false, restartCount: 4,
		lastState: {terminated: {exitCode: 137, reason: OOMKilled}},
		state: {waiting: {reason: CrashLoopBackOff, message: "back-off 1m20s restarting failed container=main pod=web-1_shop(1-2)"}}}]}`
	again = `{phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: main, ready: false, restartCount: 4,
		lastState: {terminated: {exitCode: 1, reason: Error, message: no database}}, state: {running: {startedAt: "2026-01-02T00:00:00Z"}}}]}`
	ended  = `{phase: Running, containerStatuses: [{name: main, ready: false, state: {terminated: {exitCode: 2, reason: Error}}}]}`
	starts = `{phase: Pending, initContainerStatuses: [{name: migrate, ready: true, state: {terminated: {exitCode: 0, reason: Completed}},
		lastState: {terminated: {exitCode: 1, reason: Error}}}],
		containerStatuses: [{name: main, ready: false, state: {waiting: {reason: PodInitializing}}}]}`
	unready = `{phase: Running, conditions: [{type: Ready, status: "False", reason: ContainersNotReady,
		message: "containers with unready status: [main]"}], containerStatuses: [{name: main, ready: false, state: {running: {}}}]}`
	ready     = `{phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: main, ready: true, state: {running: {}}}]}`
	recovered = `{phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: main, ready: true, restartCount: 1,
		lastState: {terminated: {exitCode: 1}}, state: {running: {}}}]}`
	evicted   = `{phase: Failed, reason: Evicted, message: "The node was low on resource: memory."}`
	disrupted = `{phase: Failed, conditions: [{type: DisruptionTarget, status: "True", reason: DeletionByTaintManager, message: "Taint manager: deleting"}]}`
	failed    = `{phase: Failed, containerStatuses: [{name: main, state: {terminated: {exitCode: 3, reason: Error}}}]}`
	late      = `{phase: Failed, reason: DeadlineExceeded, message: Pod was active on the node longer than the specified deadline}`
)

func TestTheCauseOfAPodIsWhatItMeetsFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  string
		reason  readiness.Reason
		outlook readiness.Outlook
		message string
	}{
		"no node":             {noNode, readiness.Unschedulable, readiness.Transient, "3 Insufficient cpu"},
		"a gate":              {gated, readiness.Unschedulable, readiness.Waiting, "scheduling gates"},
		"no volume":           {noVolume, readiness.Volume, readiness.Transient, "unbound immediate"},
		"no claim":            {noClaim, readiness.Volume, readiness.Transient, `"data" not found`},
		"no image":            {noImage, readiness.ImagePull, readiness.Transient, `container main: ImagePullBackOff: Back-off pulling image "example.com/web:2"`},
		"an invalid image":    {badImage, readiness.ImagePull, readiness.Lasting, "InvalidImageName"},
		"no secret":           {noSecret, readiness.ContainerConfig, readiness.Transient, `secret "db" not found`},
		"creating":            {creating, readiness.ContainerCreating, readiness.Waiting, "container main: ContainerCreating"},
		"just made":           {`{}`, readiness.ContainerCreating, readiness.Waiting, `phase ""`},
		"a loop":              {looping, readiness.CrashLoop, readiness.Transient, "container main ended with exit code 137, OOMKilled"},
		"between two crashes": {again, readiness.CrashLoop, readiness.Transient, "container main ended with exit code 1: no database"},
		"it has just ended":   {ended, readiness.CrashLoop, readiness.Transient, "container main ended with exit code 2"},
		"init went well":      {starts, readiness.ContainerCreating, readiness.Waiting, "PodInitializing"},
		"unready":             {unready, readiness.Unready, readiness.Waiting, "containers with unready status: [main]"},
		"ready":               {ready, "", "", ""},
		"recovered":           {recovered, "", "", ""},
		"complete":            {`{phase: Succeeded}`, "", "", ""},
		"evicted":             {evicted, readiness.Evicted, readiness.Transient, "low on resource"},
		"disrupted":           {disrupted, readiness.Evicted, readiness.Transient, "Taint manager"},
		"failed":              {failed, readiness.CrashLoop, readiness.Transient, "exit code 3"},
		"too late":            {late, readiness.CrashLoop, readiness.Transient, "DeadlineExceeded: Pod was active"},
	} {
		pod := podWith(t, test.status)
		c := readiness.Why(pod)
		require.Equal(t, test.reason, c.Reason, name)
		require.Equal(t, test.outlook, c.Outlook, name)
		require.Contains(t, c.Message, test.message, name)
		require.Equal(t, c, readiness.Why(nil, pod), "as one of a workload: %s", name)
		if c.Reason != "" {
			require.Contains(t, c.Message, "Pod web-1: ", name)
		}
	}
}

const (
	deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, status: {conditions: `
	stuck      = deployment + `[{type: Available, status: "False"}, {type: Progressing, status: "False", reason: ProgressDeadlineExceeded,
		message: 'ReplicaSet "web-5" has timed out progressing.'}]}}`
	overQuota = deployment + `[{type: Progressing, status: "True", reason: NewReplicaSetCreated}, {type: ReplicaFailure, status: "True", reason: FailedCreate,
		message: 'pods "web-5-x" is forbidden: exceeded quota: all, requested: pods=1, used: pods=2, limited: pods=2'}]}}`
	insecure = deployment + `[{type: ReplicaFailure, status: "True", reason: FailedCreate,
		message: 'pods "web-5-x" is forbidden: violates PodSecurity "restricted:latest"'}]}}`
	rolling   = deployment + `[{type: Progressing, status: "True", reason: ReplicaSetUpdated}]}}`
	failedJob = `{apiVersion: batch/v1, kind: Job, metadata: {name: web}, status: {conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded,
		message: Job has reached the specified backoff limit}]}}`
)

func TestTheCauseOfAWorkloadIsThatOfItsPodsBeforeItsOwn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workload, pod string
		reason        readiness.Reason
		outlook       readiness.Outlook
		message       string
	}{
		"stuck, and no pod":     {stuck, "", readiness.ProgressDeadline, readiness.Lasting, "timed out progressing"},
		"stuck by the image":    {stuck, noImage, readiness.ImagePull, readiness.Lasting, "Back-off pulling"},
		"stuck and unready":     {stuck, unready, readiness.ProgressDeadline, readiness.Lasting, "timed out progressing.; Pod web-1: containers with unready"},
		"over quota":            {overQuota, "", readiness.Quota, readiness.Transient, "exceeded quota: all"},
		"over quota, one comes": {overQuota, creating, readiness.Quota, readiness.Transient, "exceeded quota: all"},
		"refused":               {insecure, "", readiness.Rejected, readiness.Transient, "PodSecurity"},
		"rolling":               {rolling, creating, readiness.ContainerCreating, readiness.Waiting, "ContainerCreating"},
		"rolling, and ready":    {rolling, ready, "", "", ""},
		"a job of crashes":      {failedJob, failed, readiness.CrashLoop, readiness.Lasting, "exit code 3"},
		"a job, no pod left":    {failedJob, "", readiness.ProgressDeadline, readiness.Lasting, "backoff limit"},
	} {
		var others []*unstructured.Unstructured
		if test.pod != "" {
			others = append(others, podWith(t, test.pod))
		}
		c := readiness.Why(parse(t, test.workload), others...)
		require.Equal(t, test.reason, c.Reason, name)
		require.Equal(t, test.outlook, c.Outlook, name)
		require.Contains(t, c.Message, test.message, name)
	}
}

func TestOnlyPodsOfTheNewestRevisionAreACause(t *testing.T) {
	t.Parallel()
	of := func(hash, name, made, status string) *unstructured.Unstructured {
		o := podWith(t, status)
		o.SetName(name)
		o.SetLabels(map[string]string{"pod-template-hash": hash})
		require.NoError(t, unstructured.SetNestedField(o.Object, made, "metadata", "creationTimestamp"))
		return o
	}
	replicas := func(hash, revision, conditions string) *unstructured.Unstructured {
		return parse(t, `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-`+hash+`, labels: {pod-template-hash: `+hash+`},
			annotations: {deployment.kubernetes.io/revision: "`+revision+`"}}, status: {conditions: `+conditions+`}}`)
	}
	old, next := of("old", "web-1", "2026-01-01T00:00:00Z", looping), of("new", "web-2", "2026-01-02T00:00:00Z", creating)
	require.Equal(t, readiness.ContainerCreating, readiness.Why(nil, old, next).Reason)
	require.Equal(t, readiness.CrashLoop, readiness.Why(nil, old).Reason, "there is no other")
	require.Equal(
		t,
		readiness.CrashLoop,
		readiness.Why(nil, old, next, replicas("old", "10", "[]"), replicas("new", "9", "[]")).Reason,
		"rolled back",
	)
	quota := `[{type: ReplicaFailure, status: "True", message: "exceeded quota"}]`
	require.Equal(t, readiness.Quota, readiness.Why(nil, old, replicas("old", "1", "[]"), replicas("new", "2", quota)).Reason)

	going := old.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(going.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"))
	require.Empty(t, readiness.Why(nil, going))
}

func TestOfSeveralCausesTheHeaviestIsFirst(t *testing.T) {
	t.Parallel()
	pods := []*unstructured.Unstructured{podWith(t, creating), podWith(t, noImage), podWith(t, looping), podWith(t, noNode)}
	require.Equal(t, readiness.Unschedulable, readiness.Why(nil, pods...).Reason)
	pods = append(pods, podWith(t, badImage))
	require.Equal(t, readiness.ImagePull, readiness.Why(nil, pods...).Reason)
	claim := parse(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, status: {phase: Pending}}`)
	require.Equal(
		t,
		readiness.Cause{readiness.Volume, readiness.Waiting, `PersistentVolumeClaim data: phase "Pending"`},
		readiness.Why(nil, claim),
	)
	require.NoError(t, unstructured.SetNestedField(claim.Object, "Lost", "status", "phase"))
	require.Equal(t, readiness.Lasting, readiness.Why(nil, claim).Outlook)
	require.NoError(t, unstructured.SetNestedField(claim.Object, "Bound", "status", "phase"))
	require.Zero(t, readiness.Why(nil, claim))
	require.Zero(t, readiness.Why(nil, nil, parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`)), "of other kinds")
	require.Zero(t, readiness.First())
}
