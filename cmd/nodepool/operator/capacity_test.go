package operator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	nodepool "github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
)

const (
	bufferDefinition = "testdata/capacitybuffers.yaml"
	bufferStrategy   = "buffer.stratos.sh/standby-capacity"
)

// TestCapacityBuffers keeps standby machines for CapacityBuffers of a real API server, with
// the operator's own rights. Their definition comes after the operator has started, and
// goes again.
func TestCapacityBuffers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	c := newCell(t)
	var operator nodepool.Operator
	r := c.start(t, func(o *nodepool.Operator) { operator = *o })
	without := c.bench(t, "b-without")
	without.class()
	without.pool("poolSize: 2, minStandby: 1")
	without.standby(1) // as ever
	define(t, c)
	_, err := c.cluster.Kubectl(t.Context(), "apply", "--dry-run=server", "-f", "../config/samples/capacitybuffer")
	require.NoError(t, err)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){
			"keep":    keepsStandby,
			"full":    keepsWithinTheSize,
			"zone":    keepsStandbyInAZone,
			"wrong":   refusesBadBuffers,
			"foreign": leavesOthersAlone,
			"scale":   keepsAShareOfAWorkload,
			"plan":    func(b *bench) { previewsBuffers(b, operator) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(c.bench(t, "b-"+name))
			})
		}
	})
	bufferWritesNothingAtRest(without, r)
	last := c.bench(t, "b-last")
	last.class()
	last.pool("poolSize: 3, minStandby: 0, scaleDown: {surplusStandbyTTL: 1s}")
	last.podTemplate("web", "cpu: 3", "")
	last.buffer("web", "podTemplateRef: {name: web}, replicas: 1")
	last.buffered("web")
	r.stop()
	keepsWhatMayBeTaken(last)
	_, err = c.cluster.Kubectl(t.Context(), "delete", "crd", buffers.Definition, "--timeout=60s")
	require.NoError(t, err)
	last.eventually("none is kept", func() bool { return len(last.instances()) == 0 && last.counts() == [3]int32{} })
	define(t, c)
	last.buffer("web", "podTemplateRef: {name: web}, replicas: 1")
	last.buffered("web")
}

// keepsWhatMayBeTaken starts an operator that cannot read the buffers: until it can, it
// terminates no standby machine.
func keepsWhatMayBeTaken(b *bench) {
	var blind atomic.Bool
	blind.Store(true)
	r := b.startWith(b.T, &running{wire: &wire{}, net: &applytest.Transport{Fault: func(r applytest.Request) applytest.Fault {
		if blind.Load() && r.Resource == buffers.Plural {
			return applytest.Fault{Status: http.StatusForbidden}
		}
		return applytest.Fault{}
	}}}, nil)
	b.eventually("some passes", func() bool { return r.wire.count("DescribeInstances") > 4 })
	require.Len(b, b.instances(), 1)
	require.Equal(b, [3]int32{1, 0, 1}, b.counts())
	blind.Store(false)
	b.buffer("other", "podTemplateRef: {name: web}, replicas: 1")
	b.eventually("both have a machine", func() bool {
		return len(b.instances()) == 2 && b.counts()[0] == 2
	})
	b.buffered("other")
	b.buffered("web")
}

// define brings the definition.
func define(t *testing.T, c *cell) {
	t.Helper()
	text, err := os.ReadFile(bufferDefinition)
	require.NoError(t, err)
	require.NoError(t, c.cluster.Apply(t.Context(), string(text)))
	_, err = c.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", buffers.Definition)
	require.NoError(t, err)
}

// podTemplate makes a PodTemplate for machines of the pool alone.
func (b *bench) podTemplate(name, requests, more string) {
	b.Helper()
	b.apply(
		fmt.Sprintf(
			"{apiVersion: v1, kind: PodTemplate, metadata: {name: %s, namespace: %s}, template: {metadata: {labels: {app: %s}}, spec: {nodeSelector: {stratos.sh/pool: %s%s}, containers: [{name: c, image: x, resources: {requests: {%s}}}]}}}",
			name,
			b.name,
			b.name,
			b.name,
			more,
			requests,
		),
	)
}

// buffer makes a buffer of our strategy.
func (b *bench) buffer(name, spec string) {
	b.Helper()
	b.bufferOf(name, bufferStrategy, spec)
}

func (b *bench) bufferOf(name, strategy, spec string) {
	b.Helper()
	b.apply(
		fmt.Sprintf(
			"{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {name: %s, namespace: %s}, spec: {provisioningStrategy: %s, %s}}",
			name,
			b.name,
			strategy,
			spec,
		),
	)
}

// readBuffer returns a buffer.
func (b *bench) readBuffer(name string) *buffers.CapacityBuffer {
	b.Helper()
	o, err := b.objects.Resource(buffers.Resource()).Namespace(b.name).Get(b.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &buffers.CapacityBuffer{}
	}
	require.NoError(b, err)
	text, err := json.Marshal(o.Object)
	require.NoError(b, err)
	out := &buffers.CapacityBuffer{}
	require.NoError(b, json.Unmarshal(text, out))
	return out
}

// buffered waits until the condition Ready of a buffer has the reason OnStandby, and returns
// the buffer.
func (b *bench) buffered(name string) *buffers.CapacityBuffer {
	b.Helper()
	const reason = "OnStandby"
	var o *buffers.CapacityBuffer
	b.eventually("buffer "+name+" is "+reason, func() bool {
		o = b.readBuffer(name)
		c := meta.FindStatusCondition(o.Status.Conditions, buffers.ConditionReady)
		return c != nil && c.Reason == reason
	})
	return o
}

// unprovided waits until the condition Provisioning has the reason and names the cause, and
// returns the buffer. Before the class of the pool is read the cause is another one.
func (b *bench) unprovided(name, reason, cause string) *buffers.CapacityBuffer {
	b.Helper()
	var o *buffers.CapacityBuffer
	b.eventually("buffer "+name+" is "+reason+": "+cause, func() bool {
		o = b.readBuffer(name)
		c := meta.FindStatusCondition(o.Status.Conditions, buffers.ConditionProvisioning)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, cause)
	})
	return o
}

func (b *bench) removeBuffer(name string) {
	b.Helper()
	require.NoError(b, b.objects.Resource(buffers.Resource()).Namespace(b.name).Delete(b.Context(), name, metav1.DeleteOptions{}))
}

// keepsStandby: two pods of the template fit on a machine, so four take two, and another
// template four; pods that come use them, and others warm up; once the buffer is deleted,
// surplus is removed as by C26.
func keepsStandby(b *bench) {
	b.class()
	b.pool("poolSize: 6, minStandby: 1, scaleDown: {surplusStandbyTTL: 2s, emptyNodeTTL: 1h}")
	b.standby(1)
	b.podTemplate("web", "cpu: 1500m", "")
	b.buffer("web", "podTemplateRef: {name: web}, replicas: 4")
	o := b.buffered("web")
	b.eventually("two are kept", func() bool { return b.counts()[0] == 2 })
	require.Equal(b, int32(4), *o.Status.Replicas)
	require.Equal(b, "web", o.Status.PodTemplateRef.Name)
	require.Equal(b, int64(1), *o.Status.PodTemplateGeneration)
	require.Equal(b, bufferStrategy, *o.Status.ProvisioningStrategy)
	require.True(b, meta.IsStatusConditionTrue(o.Status.Conditions, buffers.ConditionReadyForProvisioning))
	require.True(b, meta.IsStatusConditionTrue(o.Status.Conditions, buffers.ConditionProvisioning))

	b.podTemplate("web", "cpu: 3", "")
	b.eventually("four are kept", func() bool {
		o := b.readBuffer("web")
		return *o.Status.PodTemplateGeneration == 2 && meta.IsStatusConditionTrue(o.Status.Conditions, buffers.ConditionReady) &&
			b.counts()[0] == 4
	})
	b.podTemplate("web", "cpu: 1500m", "")
	b.eventually("surplus goes", func() bool { return b.counts()[0] == 2 })

	b.pods(names("pod", 4), "cpu: 1500m", "")
	b.eventually("pods have the machines", func() bool { return b.bound() == 4 })
	b.eventually("and others are kept", func() bool { return b.counts() == [3]int32{2, 2, 4} })
	b.buffered("web")
	require.LessOrEqual(b, len(b.instances()), 6)

	b.removeBuffer("web")
	b.eventually("surplus goes", func() bool { return b.counts() == [3]int32{1, 2, 3} })
}

// keepsWithinTheSize: a buffer that the pool has no room for takes what there is, says what
// is missing and why, and takes more when the pool grows.
func keepsWithinTheSize(b *bench) {
	b.class()
	b.pool("poolSize: 2, minStandby: 0")
	b.podTemplate("web", "cpu: 3", "")
	b.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
	b.unprovided("web", "DoesNotFit", "2 of 3 pods have room on standby machines: 2 of pool "+b.name)
	b.eventReported("CapacityBuffer", "web", "DoesNotFit")
	b.eventually("two are kept", func() bool { return b.counts()[0] == 2 })
	require.Len(b, b.instances(), 2)
	require.Equal(b, "False", string(b.condition("Degraded").Status))
	b.pool("poolSize: 3, minStandby: 0")
	b.buffered("web")
	require.Len(b, b.instances(), 3)
}

// keepsStandbyInAZone: pods of a zone find standby machines there, also if there are others
// elsewhere.
func keepsStandbyInAZone(b *bench) {
	b.class()
	b.pool("poolSize: 6, minStandby: 2")
	b.standby(2)
	zone := *b.instances()[0].Placement.AvailabilityZone
	b.podTemplate("web", "cpu: 3", ", topology.kubernetes.io/zone: "+zone)
	b.buffer("web", "podTemplateRef: {name: web}, replicas: 3")
	b.buffered("web")
	there := 0
	for _, i := range b.instances() {
		if *i.Placement.AvailabilityZone == zone {
			there++
		}
	}
	require.Equal(b, 3, there)
	require.Len(b, b.instances(), 4)
}

// refusesBadBuffers: each condition names the field, and goes when it is put right; nothing
// is launched meanwhile.
func refusesBadBuffers(b *bench) {
	b.class()
	b.pool("poolSize: 3, minStandby: 0")
	b.buffer("absent", "podTemplateRef: {name: later}, replicas: 1")
	b.buffer("none", "replicas: 1")
	b.buffer("kind", "scalableRef: {apiGroup: batch, kind: Job, name: x}, replicas: 1")
	b.buffer("workload", "scalableRef: {apiGroup: apps, kind: Deployment, name: x}, percentage: 10")
	b.apply(
		fmt.Sprintf(
			"{apiVersion: v1, kind: PodTemplate, metadata: {name: placed, namespace: %s}, template: {spec: {nodeName: x, containers: [{name: c, image: x}]}}}",
			b.name,
		),
	)
	b.buffer("placed", "podTemplateRef: {name: placed}, replicas: 1")
	b.podTemplate("huge", "cpu: 400", "")
	b.buffer("huge", "podTemplateRef: {name: huge}, replicas: 1")
	b.buffer("limits", "podTemplateRef: {name: huge}, limits: {ephemeral-storage: 1Gi}")
	b.podTemplate("little", "cpu: 3", "")
	b.buffer("little", "podTemplateRef: {name: little}, replicas: 5, limits: {cpu: 2}")
	for name, want := range map[string][2]string{
		"absent":   {"PodTemplateNotFound", `spec.podTemplateRef.name: PodTemplate "later" does not exist in namespace ` + b.name},
		"none":     {"InvalidSpec", "spec.podTemplateRef: is not set"},
		"kind":     {"UnsupportedKind", `spec.scalableRef: is a Job of the group "batch", must be a Deployment or StatefulSet`},
		"workload": {"ScalableNotFound", `spec.scalableRef.name: Deployment "x" does not exist`},
		"placed":   {"InvalidTemplate", `spec.nodeName: is "x", must not be set`},
		"limits":   {"InvalidSpec", "spec.limits: bounds [ephemeral-storage]"},
		"huge":     {"DoesNotFit", "pool " + b.name + ": needs 400 cpu"},
	} {
		o := b.unprovided(name, want[0], want[1])
		require.Equal(b, want[0] == "DoesNotFit", meta.IsStatusConditionTrue(o.Status.Conditions, buffers.ConditionReadyForProvisioning), name)
		b.eventReported("CapacityBuffer", name, want[0])
	}
	require.Zero(b, *b.buffered("little").Status.Replicas, "its limits allow none")
	require.Empty(b, b.instances())
	b.podTemplate("later", "cpu: 1", "")
	require.Equal(b, int32(1), *b.buffered("absent").Status.Replicas)
	require.Len(b, b.instances(), 1)
}

// leavesOthersAlone: the status of a buffer of another strategy is not written, also not
// when it was ours before.
func leavesOthersAlone(b *bench) {
	b.class()
	b.pool("poolSize: 3, minStandby: 0, scaleDown: {surplusStandbyTTL: 1s}")
	b.podTemplate("web", "cpu: 3", "")
	b.bufferOf("active", "buffer.x-k8s.io/active-capacity", "podTemplateRef: {name: web}, replicas: 2")
	b.bufferOf("other", "buffer.example.com/else", "podTemplateRef: {name: web}, replicas: 2")
	b.buffer("ours", "podTemplateRef: {name: web}, replicas: 1")
	b.buffered("ours")
	require.Len(b, b.instances(), 1)
	before := b.readBuffer("ours").Status
	b.bufferOf("ours", "buffer.x-k8s.io/active-capacity", "podTemplateRef: {name: web}, replicas: 1")
	b.eventually("none is kept", func() bool { return len(b.instances()) == 0 })
	require.Equal(b, before, b.readBuffer("ours").Status)
	for _, name := range []string{"active", "other"} {
		require.Equal(b, buffers.Status{}, b.readBuffer(name).Status, name)
	}
}

// keepsAShareOfAWorkload: as the workload grows, so does the buffer.
func keepsAShareOfAWorkload(b *bench) {
	b.class()
	b.pool("poolSize: 4, minStandby: 0")
	deployment := func(replicas int) {
		// Its own pods cannot run, so that the machines are left to the buffer.
		b.apply(
			fmt.Sprintf(
				"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: %s}, spec: {paused: true, replicas: %d, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {stratos.sh/pool: %s}, containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}}}}",
				b.name,
				replicas,
				b.name,
			),
		)
	}
	deployment(0)
	b.buffer("web", "scalableRef: {apiGroup: apps, kind: Deployment, name: web}, percentage: 20")
	o := b.buffered("web")
	require.Equal(b, int32(1), *o.Status.Replicas)
	require.Nil(b, o.Status.PodTemplateRef)
	deployment(10)
	b.eventually("two of ten", func() bool { return *b.readBuffer("web").Status.Replicas == 2 })
}

// previewsBuffers: the plan lists the launches for buffers, and writes nothing.
func previewsBuffers(b *bench, o nodepool.Operator) {
	b.class()
	b.pool("poolSize: 3, minStandby: 0")
	b.podTemplate("web", "cpu: 3", "")
	b.buffer("web", "podTemplateRef: {name: web}, replicas: 2")
	b.buffer("wrong", "podTemplateRef: {name: nowhere}, replicas: 2")
	b.buffered("web")
	preview := nodepool.Preview{Operator: o, Pool: b.name}
	var out strings.Builder
	require.NoError(b, preview.Write(b.Context(), &out))
	lines := strings.Split(out.String(), "\n")
	require.Contains(b, lines, fmt.Sprintf("buffer %s/web: 2 of 2 pods have room on standby machines: 2 of pool %s", b.name, b.name))
	require.Contains(
		b,
		lines,
		fmt.Sprintf("buffer %s/wrong: spec.podTemplateRef.name: PodTemplate \"nowhere\" does not exist in namespace %s", b.name, b.name),
	)
	require.True(
		b,
		slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "machines: 2 (warmup 0, standby 2") }),
		out.String(),
	)
	write := func(preview nodepool.Preview) (string, error) {
		var out strings.Builder
		err := preview.Write(b.Context(), &out)
		return out.String(), err
	}
	_, err := write(nodepool.Preview{Operator: o, Pool: "nope"})
	require.ErrorContains(b, err, `NodePool "nope" does not exist; there are `)
	require.ErrorContains(b, err, b.name)
	_, err = write(nodepool.Preview{Operator: o, Prices: map[string]float64{"m5.xlarge": 1, "foo": 1}})
	require.EqualError(b, err, "--price: the type foo is of no pool, must be one of m5.xlarge")
	o.ClusterName = "other"
	text, _ := write(nodepool.Preview{Operator: o, Pool: b.name})
	require.Contains(b, text, "ClusterNameChanged: ")
	require.Contains(b, text, "it is left alone: ")
	require.Contains(b, text, fmt.Sprintf("buffer %s/web: 0 of 2 pods have room; ", b.name))
	require.Contains(b, text, "has no machine that can be started or launched: ClusterNameChanged: ")
}

// bufferWritesNothingAtRest: buffers that have what they ask for cost no write.
func bufferWritesNothingAtRest(b *bench, r *running) {
	version := func() string {
		list, err := b.objects.Resource(buffers.Resource()).List(b.Context(), metav1.ListOptions{})
		require.NoError(b, err)
		var all strings.Builder
		for i := range list.Items {
			all.WriteString(list.Items[i].GetNamespace() + "/" + list.Items[i].GetName() + " " + list.Items[i].GetResourceVersion() + "\n")
		}
		return all.String()
	}
	before, lists := version(), r.wire.count("DescribeInstances")
	b.eventually("some passes", func() bool { return r.wire.count("DescribeInstances") > lists+3 })
	require.Equal(b, before, version())
}
