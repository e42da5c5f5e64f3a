package readiness_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// readinessCase is an object and its expected status.
type readinessCase struct {
	name, object string
	want         readiness.Status
	message      string // a part of it
}

func (c readinessCase) read(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(c.object), &object.Object))
	return object
}

func testReadiness(t *testing.T, kind string, cases []readinessCase) {
	t.Helper()
	for i := range cases {
		c := cases[i]
		c.object = kind + strings.TrimPrefix(c.object, "{")
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := readiness.Of(c.read(t))
			require.Equal(t, c.want, got.Status, "%s", got.Message)
			require.Contains(t, got.Message, c.message)
			require.Equal(t, got.Status == readiness.Current, got.Message == "", "only Current has no message")
		})
	}
}

func TestReadinessOfDeployments(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: apps/v1, kind: Deployment, ", []readinessCase{
		{"new", `{metadata: {generation: 1}, spec: {replicas: 1}}`, readiness.InProgress, "not seen it yet"},
		{
			"changed",
			`{metadata: {generation: 2}, status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}}`,
			readiness.InProgress,
			"generation 2 is not observed yet, 1 is",
		},
		{
			"none made",
			`{metadata: {generation: 1}, spec: {replicas: 2}, status: {observedGeneration: 1}}`,
			readiness.InProgress,
			"replicas: 0 of 2",
		},
		{"one is the default", `{metadata: {generation: 1}, status: {observedGeneration: 1}}`, readiness.InProgress, "replicas: 0 of 1"},
		{
			"not updated",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 2, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2}}`,
			readiness.InProgress,
			"updated replicas: 1 of 2",
		},
		{
			"old ones left",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 3, updatedReplicas: 2, readyReplicas: 3, availableReplicas: 3}}`,
			readiness.InProgress,
			"1 old replicas are still there",
		},
		{
			"scaled down",
			`{spec: {replicas: 1}, status: {observedGeneration: 0, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`,
			readiness.InProgress,
			"replicas: 3 of 1",
		},
		{
			"not available",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 1}}`,
			readiness.InProgress,
			"available replicas: 1 of 2",
		},
		{
			"not ready",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 2, updatedReplicas: 2, readyReplicas: 1, availableReplicas: 2}}`,
			readiness.InProgress,
			"ready replicas: 1 of 2",
		},
		{
			"said to be unavailable",
			`{spec: {replicas: 0}, status: {observedGeneration: 0, conditions: [{type: Available, status: "False", reason: MinimumReplicasUnavailable}]}}`,
			readiness.InProgress,
			"Available is False, MinimumReplicasUnavailable",
		},
		{
			"overdue",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: too slow}]}}`,
			readiness.Failed,
			"Progressing is False, ProgressDeadlineExceeded: too slow",
		},
		{
			"progressing",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 1, conditions: [{type: Progressing, status: "True", reason: ReplicaSetUpdated}]}}`,
			readiness.InProgress,
			"replicas: 1 of 2",
		},
		{"none wanted", `{spec: {replicas: 0}, status: {observedGeneration: 0}}`, readiness.Current, ""},
		{
			"complete",
			`{metadata: {generation: 3}, spec: {replicas: 2}, status: {observedGeneration: 3, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`,
			readiness.Current,
			"",
		},
		{
			"paused as stated",
			`{spec: {replicas: 1, paused: true}, status: {observedGeneration: 0, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, conditions: [{type: Available, status: "True"}, {type: Progressing, status: Unknown, reason: DeploymentPaused}]}}`,
			readiness.Current,
			"",
		},
		{
			"paused before a change",
			`{spec: {replicas: 1, paused: true}, status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, availableReplicas: 1}}`,
			readiness.InProgress,
			"updated replicas: 0 of 1",
		},
		{"deleted", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, readiness.Terminating, "is being deleted"},
	})
}

func TestReadinessOfReplicaSets(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: apps/v1, kind: ReplicaSet, ", []readinessCase{
		{"new", `{}`, readiness.InProgress, "not seen it yet"},
		{
			"refused pods",
			`{status: {observedGeneration: 0, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota}]}}`,
			readiness.InProgress,
			"ReplicaFailure is True, FailedCreate: quota",
		},
		{"too many", `{spec: {replicas: 1}, status: {observedGeneration: 0, replicas: 2}}`, readiness.InProgress, "replicas: 2 of 1"},
		{"too few", `{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 1}}`, readiness.InProgress, "replicas: 1 of 2"},
		{"not labelled", `{status: {observedGeneration: 0, replicas: 1}}`, readiness.InProgress, "labelled replicas: 0 of 1"},
		{
			"not available",
			`{status: {observedGeneration: 0, replicas: 1, fullyLabeledReplicas: 1}}`,
			readiness.InProgress,
			"available replicas: 0 of 1",
		},
		{
			"not ready",
			`{status: {observedGeneration: 0, replicas: 1, fullyLabeledReplicas: 1, availableReplicas: 1}}`,
			readiness.InProgress,
			"ready replicas: 0 of 1",
		},
		{
			"complete",
			`{status: {observedGeneration: 0, replicas: 1, fullyLabeledReplicas: 1, availableReplicas: 1, readyReplicas: 1, conditions: [{type: ReplicaFailure, status: "False"}]}}`,
			readiness.Current,
			"",
		},
	})
}

func TestReadinessOfStatefulSets(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: apps/v1, kind: StatefulSet, ", []readinessCase{
		{"new", `{}`, readiness.InProgress, "not seen it yet"},
		{"too many", `{spec: {replicas: 1}, status: {observedGeneration: 0, replicas: 2}}`, readiness.InProgress, "replicas: 2 of 1"},
		{"too few", `{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 1}}`, readiness.InProgress, "replicas: 1 of 2"},
		{
			"not ready",
			`{spec: {replicas: 2}, status: {observedGeneration: 0, replicas: 2, readyReplicas: 1}}`,
			readiness.InProgress,
			"ready replicas: 1 of 2",
		},
		{
			"revisions differ",
			`{status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, currentReplicas: 1, currentRevision: a, updateRevision: b}}`,
			readiness.InProgress,
			"revision a is being replaced by b",
		},
		{
			"not current",
			`{status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, currentRevision: a, updateRevision: a}}`,
			readiness.InProgress,
			"current replicas: 0 of 1",
		},
		{
			"complete",
			`{status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, currentReplicas: 1, currentRevision: a, updateRevision: a}}`,
			readiness.Current,
			"",
		},
		{
			"partition not reached",
			`{spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {observedGeneration: 0, replicas: 3, readyReplicas: 3, updatedReplicas: 1, currentRevision: a, updateRevision: b}}`,
			readiness.InProgress,
			"updated replicas: 1 of 2",
		},
		{
			"partition reached",
			`{spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {observedGeneration: 0, replicas: 3, readyReplicas: 3, updatedReplicas: 2, currentRevision: a, updateRevision: b}}`,
			readiness.Current,
			"",
		},
		{
			"partition beyond the end",
			`{spec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 9}}}, status: {observedGeneration: 0, replicas: 3, readyReplicas: 3}}`,
			readiness.Current,
			"",
		},
		{
			"partition of nothing",
			`{spec: {replicas: 1, updateStrategy: {rollingUpdate: {partition: 0}}}, status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, currentRevision: a, updateRevision: b}}`,
			readiness.InProgress,
			"revision a",
		},
		{
			"on delete, not ready",
			`{spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 0, replicas: 1, currentRevision: a, updateRevision: b}}`,
			readiness.InProgress,
			"ready replicas: 0 of 1",
		},
		{
			"on delete, of any revision",
			`{spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 0, replicas: 1, readyReplicas: 1, currentRevision: a, updateRevision: b}}`,
			readiness.Current,
			"",
		},
	})
}

func TestReadinessOfDaemonSets(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: apps/v1, kind: DaemonSet, ", []readinessCase{
		{"new", `{}`, readiness.InProgress, "not seen it yet"},
		{"not counted", `{status: {observedGeneration: 0}}`, readiness.InProgress, "not seen it yet"},
		{
			"not scheduled",
			`{status: {observedGeneration: 0, desiredNumberScheduled: 2, currentNumberScheduled: 1}}`,
			readiness.InProgress,
			"scheduled pods: 1 of 2",
		},
		{
			"not updated",
			`{status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1}}`,
			readiness.InProgress,
			"updated pods: 0 of 1",
		},
		{
			"not available",
			`{status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1}}`,
			readiness.InProgress,
			"available pods: 0 of 1",
		},
		{
			"not ready",
			`{status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1}}`,
			readiness.InProgress,
			"ready pods: 0 of 1",
		},
		{
			"complete",
			`{status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1, numberReady: 1}}`,
			readiness.Current,
			"",
		},
		{"no node fits", `{status: {observedGeneration: 0, desiredNumberScheduled: 0}}`, readiness.Current, ""},
		{
			"on delete, not ready",
			`{spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1, numberAvailable: 1}}`,
			readiness.InProgress,
			"ready pods: 0 of 1",
		},
		{
			"on delete, of any revision",
			`{spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 0, desiredNumberScheduled: 1, currentNumberScheduled: 1, numberAvailable: 1, numberReady: 1}}`,
			readiness.Current,
			"",
		},
	})
}

func TestReadinessOfPods(t *testing.T) {
	t.Parallel()
	cases := []readinessCase{
		{"new", `{}`, readiness.InProgress, `phase ""`},
		{"pending", `{status: {phase: Pending}}`, readiness.InProgress, `phase "Pending"`},
		{"unknown", `{status: {phase: Unknown}}`, readiness.InProgress, `phase "Unknown"`},
		{
			"unschedulable",
			`{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: no node}]}}`,
			readiness.InProgress,
			"PodScheduled is False, Unschedulable: no node",
		},
		{"succeeded", `{status: {phase: Succeeded}}`, readiness.Current, ""},
		{"failed", `{status: {phase: Failed, message: evicted}}`, readiness.Failed, "phase Failed: evicted"},
		{"running", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, readiness.Current, ""},
		{
			"running, not ready",
			`{status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`,
			readiness.InProgress,
			"running, and not ready",
		},
		{"running, ready not told", `{status: {phase: Running}}`, readiness.InProgress, "running, and not ready"},
		{
			"crashing",
			`{status: {phase: Running, containerStatuses: [{name: a, state: {running: {}}}, {name: b, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}}]}}`,
			readiness.Failed,
			"container b is waiting: CrashLoopBackOff: back-off",
		},
		{
			"crashing while it begins",
			`{status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}}]}}`,
			readiness.Failed,
			"container i is waiting: CrashLoopBackOff",
		},
		{
			"being made",
			`{status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}]}}`,
			readiness.InProgress,
			`phase "Pending"`,
		},
		{"no list of containers", `{status: {phase: Running, containerStatuses: [7, {state: 3}, null]}}`, readiness.InProgress, "not ready"},
	}
	for _, reason := range []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"} {
		cases = append(
			cases,
			readinessCase{
				reason,
				`{status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ` + reason + `, message: x}}}]}}`,
				readiness.Failed,
				"container a is waiting: " + reason + ": x",
			},
		)
	}
	testReadiness(t, "{apiVersion: v1, kind: Pod, ", cases)
}

func TestReadinessOfWhatTheCoreServes(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: v1, ", []readinessCase{
		{"claim, new", `{kind: PersistentVolumeClaim}`, readiness.InProgress, `phase ""`},
		{"claim, pending", `{kind: PersistentVolumeClaim, status: {phase: Pending}}`, readiness.InProgress, `phase "Pending"`},
		{"claim, bound", `{kind: PersistentVolumeClaim, status: {phase: Bound}}`, readiness.Current, ""},
		{"claim, lost", `{kind: PersistentVolumeClaim, status: {phase: Lost}}`, readiness.Failed, "its volume was deleted"},
		{"service", `{kind: Service, spec: {type: ClusterIP}}`, readiness.Current, ""},
		{"service of the default type", `{kind: Service}`, readiness.Current, ""},
		{
			"balancer, new",
			`{kind: Service, spec: {type: LoadBalancer, clusterIP: 10.0.0.1}, status: {loadBalancer: {}}}`,
			readiness.InProgress,
			"no address yet",
		},
		{"balancer, no status", `{kind: Service, spec: {type: LoadBalancer}}`, readiness.InProgress, "no address yet"},
		{"balancer", `{kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`, readiness.Current, ""},
		{"namespace", `{kind: Namespace, status: {phase: Active}}`, readiness.Current, ""},
		{"namespace, going", `{kind: Namespace, status: {phase: Terminating}}`, readiness.Terminating, "is being deleted"},
		{"config map", `{kind: ConfigMap, data: {status: x}}`, readiness.Current, ""},
		{"secret", `{kind: Secret}`, readiness.Current, ""},
	})
}

func TestReadinessOfJobs(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: batch/v1, ", []readinessCase{
		{"new", `{kind: Job, spec: {}}`, readiness.InProgress, "not complete"},
		{"without a spec", `{kind: Job}`, readiness.InProgress, "not complete"},
		{"running", `{kind: Job, spec: {}, status: {active: 1, startTime: "2026-01-01T00:00:00Z"}}`, readiness.InProgress, "not complete"},
		{"complete", `{kind: Job, spec: {}, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`, readiness.Current, ""},
		{
			"failed",
			`{kind: Job, spec: {}, status: {conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded, message: too often}]}}`,
			readiness.Failed,
			"Failed is True, BackoffLimitExceeded: too often",
		},
		{
			"not failed",
			`{kind: Job, spec: {}, status: {conditions: [{type: Failed, status: "False"}, {type: Complete, status: "False"}]}}`,
			readiness.InProgress,
			"not complete",
		},
		{
			"suspended",
			`{kind: Job, spec: {suspend: true}, status: {conditions: [{type: Suspended, status: "True"}]}}`,
			readiness.InProgress,
			"suspended",
		},
		{"suspended by a word", `{kind: Job, spec: {suspend: "true"}}`, readiness.InProgress, "not complete"},
		{"cron job", `{kind: CronJob, spec: {suspend: true}}`, readiness.Current, ""},
	})
}

func TestReadinessOfWhatExtendsTheServer(t *testing.T) {
	t.Parallel()
	testReadiness(t, "", []readinessCase{
		{"budget, new", "apiVersion: policy/v1\nkind: PodDisruptionBudget", readiness.InProgress, "not seen it yet"},
		{
			"budget without pods",
			"apiVersion: policy/v1\nkind: PodDisruptionBudget\nstatus: {observedGeneration: 0, currentHealthy: 0, desiredHealthy: 2}",
			readiness.Current,
			"",
		},
		{
			"budget that is not computed",
			"apiVersion: policy/v1\nkind: PodDisruptionBudget\nstatus: {observedGeneration: 0, conditions: [{type: DisruptionAllowed, status: 'False', reason: SyncFailed, message: no scale}]}",
			readiness.InProgress,
			"DisruptionAllowed is False, SyncFailed: no scale",
		},
		{
			"budget that allows none",
			"apiVersion: policy/v1\nkind: PodDisruptionBudget\nstatus: {observedGeneration: 0, conditions: [{type: DisruptionAllowed, status: 'False', reason: InsufficientPods}]}",
			readiness.Current,
			"",
		},
		{"definition, new", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition", readiness.InProgress, "not established yet"},
		{
			"definition, installing",
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nstatus: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'False', reason: Installing}]}",
			readiness.InProgress,
			"not established yet",
		},
		{
			"definition, established",
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nstatus: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}",
			readiness.Current,
			"",
		},
		{
			"definition, names taken",
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nstatus: {conditions: [{type: Established, status: 'False', reason: NotAccepted}, {type: NamesAccepted, status: 'False', reason: PluralConflict, message: in use}]}",
			readiness.Failed,
			"NamesAccepted is False, PluralConflict: in use",
		},
		{
			"definition, refused",
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nstatus: {conditions: [{type: Established, status: 'False', reason: NotAccepted}]}",
			readiness.Failed,
			"Established is False, NotAccepted",
		},
		{"api service, new", "apiVersion: apiregistration.k8s.io/v1\nkind: APIService", readiness.InProgress, "not available yet"},
		{
			"api service, unavailable",
			"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nstatus: {conditions: [{type: Available, status: 'False'}]}",
			readiness.InProgress,
			"not available yet",
		},
		{
			"api service",
			"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nstatus: {conditions: [{type: Available, status: 'True'}]}",
			readiness.Current,
			"",
		},
		{"autoscaler, new", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler", readiness.Current, ""},
		{
			"autoscaler without metrics",
			"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nstatus: {conditions: [{type: ScalingActive, status: 'False', reason: FailedGetResourceMetric}]}",
			readiness.InProgress,
			"ScalingActive is False, FailedGetResourceMetric",
		},
		{
			"autoscaler of nothing",
			"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nstatus: {conditions: [{type: ScalingActive, status: 'False', reason: ScalingDisabled}]}",
			readiness.Current,
			"",
		},
		{
			"autoscaler",
			"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nstatus: {conditions: [{type: ScalingActive, status: 'True'}]}",
			readiness.Current,
			"",
		},
	})
}

func TestReadinessOfOtherKinds(t *testing.T) {
	t.Parallel()
	testReadiness(t, "{apiVersion: example.com/v1, kind: Widget, ", []readinessCase{
		{"no status", `{metadata: {generation: 1}}`, readiness.Current, ""},
		{
			"behind",
			`{metadata: {generation: 2}, status: {observedGeneration: 1, conditions: [{type: Stalled, status: "True"}]}}`,
			readiness.InProgress,
			"generation 2 is not observed yet, 1 is",
		},
		{"ahead", `{metadata: {generation: 1}, status: {observedGeneration: 2}}`, readiness.InProgress, "generation 1 is not observed yet, 2 is"},
		{"without generations", `{status: {observedGeneration: 2}}`, readiness.Current, ""},
		{
			"ready",
			`{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 2}]}}`,
			readiness.Current,
			"",
		},
		{
			"not ready",
			`{status: {conditions: [{type: Ready, status: "False", reason: Broken, message: by hand}]}}`,
			readiness.InProgress,
			"Ready is False, Broken: by hand",
		},
		{"perhaps ready", `{status: {conditions: [{type: Ready, status: Unknown}]}}`, readiness.InProgress, "Ready is Unknown"},
		{
			"ready no more",
			`{metadata: {generation: 3}, status: {conditions: [{type: Ready, status: "True", observedGeneration: 2}]}}`,
			readiness.InProgress,
			"Ready is True, as of generation 2 of 3",
		},
		{
			"reconciling",
			`{status: {conditions: [{type: Ready, status: "True"}, {type: Reconciling, status: "True", message: busy}]}}`,
			readiness.InProgress,
			"Reconciling is True: busy",
		},
		{"reconciled", `{status: {conditions: [{type: Reconciling, status: "False"}, {type: Stalled, status: "False"}]}}`, readiness.Current, ""},
		{
			"stalled",
			`{status: {conditions: [{type: Reconciling, status: "True"}, {type: Stalled, status: "True", reason: NoQuota}]}}`,
			readiness.Failed,
			"Stalled is True, NoQuota",
		},
		{
			"stalled no more",
			`{metadata: {generation: 3}, status: {conditions: [{type: Stalled, status: "True", observedGeneration: 2}]}}`,
			readiness.InProgress,
			"Stalled is True, as of generation 2 of 3",
		},
		{"other conditions", `{status: {conditions: [{type: Degraded, status: "True"}]}}`, readiness.Current, ""},
		{
			"going",
			`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {conditions: [{type: Ready, status: "True"}]}}`,
			readiness.Terminating,
			"is being deleted",
		},
		{"status is a word", `{status: fine}`, readiness.Current, ""},
		{"status is a list", `{status: [{observedGeneration: 1}]}`, readiness.Current, ""},
		{"conditions are a map", `{status: {conditions: {type: Ready, status: "False"}}}`, readiness.Current, ""},
		{
			"conditions are numbers",
			`{status: {conditions: [1, null, [], {type: {}}, {type: Ready, status: 1}]}}`,
			readiness.InProgress,
			"Ready is ",
		},
		{"generation is a word", `{metadata: {generation: x}, status: {observedGeneration: y}}`, readiness.Current, ""},
		{"of any other name", `{spec: {replicas: 1}}`, readiness.Current, ""},
	})
}

func TestReadinessOfNothingIsUnknown(t *testing.T) {
	t.Parallel()
	for _, object := range []*unstructured.Unstructured{nil, {}, {Object: map[string]any{}}} {
		require.Equal(t, readiness.Result{Status: readiness.Unknown, Message: "there is no object"}, readiness.Of(object))
	}
}

func FuzzOf(f *testing.F) {
	for _, kind := range []string{"v1/Pod", "v1/Service", "v1/Namespace", "v1/PersistentVolumeClaim", "batch/v1/Job", "policy/v1/PodDisruptionBudget"} {
		f.Add(
			kind,
			`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"state":{"waiting":{}}}]}}`,
		)
		f.Add(kind, `{"spec":{"suspend":1,"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":{}}}}`)
	}
	for _, kind := range []string{"apps/v1/Deployment", "apps/v1/StatefulSet", "apps/v1/DaemonSet", "apps/v1/ReplicaSet", "example.com/v1/Widget"} {
		f.Add(
			kind,
			`{"metadata":{"generation":1},"spec":{"replicas":1e300,"updateStrategy":[]},"status":{"observedGeneration":1,"replicas":"1"}}`,
		)
	}
	for _, kind := range []string{"apiextensions.k8s.io/v1/CustomResourceDefinition", "apiregistration.k8s.io/v1/APIService", "autoscaling/v2/HorizontalPodAutoscaler"} {
		f.Add(kind, `{"status":{"conditions":[{"type":"Established","status":"False"},{"type":"ScalingActive","status":{}}]}}`)
	}
	f.Fuzz(func(t *testing.T, kind, data string) {
		object := &unstructured.Unstructured{}
		if json.Unmarshal([]byte(data), &object.Object) != nil || object.Object == nil {
			return
		}
		for i := len(kind) - 1; i >= 0; i-- {
			if kind[i] == '/' {
				object.Object["apiVersion"], object.Object["kind"] = kind[:i], kind[i+1:]
				break
			}
		}
		got := readiness.Of(object)
		if (got.Status == readiness.Current) != (got.Message == "") {
			t.Errorf("%q: %q", got.Status, got.Message)
		}
		if got != readiness.Of(object) {
			t.Error("it is not the same the second time")
		}
	})
}
