package operator_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/userdata"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// world is a cluster, an EC2, and a simulator between them.
type world struct {
	t    *testing.T
	kube *kubernetes.Clientset
	ec2  *ec2.Client
}

func newWorld(t *testing.T, of func(booted) habit) *world {
	t.Helper()
	return newWorldWith(t, of, nil)
}

// newWorldWith is newWorld with a way from the simulator to EC2.
func newWorldWith(t *testing.T, of func(booted) habit, way func(http.RoundTripper) http.RoundTripper) *world {
	t.Helper()
	server := ec2test.Start(t, ec2test.Options{})
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true})
	w := &world{t: t, ec2: aws.NewClient(awsConfig(server.URL, nil), nil)}
	var err error
	w.kube, err = kubernetes.NewForConfig(cluster.Config)
	require.NoError(t, err)
	at := awsConfig(server.URL, nil)
	if way != nil {
		at.HTTPClient = &http.Client{Transport: way(http.DefaultTransport)}
	}
	simulator := &simulator{
		ec2: aws.NewClient(at, nil), config: cluster.Config,
		boot: 300 * time.Millisecond, warmup: 100 * time.Millisecond, pull: 50 * time.Millisecond,
		habit: of, log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	run(t, simulator.run)
	return w
}

func data(bootstrap v1alpha1.BootstrapTemplate) userdata.Config {
	c := userdata.Config{
		Bootstrap:   bootstrap,
		ClusterName: "test",
		Endpoint:    "https://example.com",
		CA:          "Yw==",
		CIDR:        "10.100.0.0/16",
		Labels:      map[string]string{"stratos.sh/pool": "p", "team": "a"},
		Taints: []corev1.Taint{
			{Key: v1alpha1.TaintNotReady, Value: "true", Effect: corev1.TaintEffectNoSchedule},
			{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule},
		},
		Images:   []string{"nginx", "example.com/b:1"},
		SelfStop: true,
	}
	if bootstrap == v1alpha1.Bottlerocket {
		c.Images, c.SelfStop = nil, false
	}
	return c
}

func (w *world) launch(c userdata.Config, habit string) (id string) {
	w.t.Helper()
	d, err := c.Render()
	require.NoError(w.t, err)
	out, err := w.ec2.RunInstances(w.t.Context(), &ec2.RunInstancesInput{
		ImageId:      awssdk.String("ami-12c6146b"),
		InstanceType: types.InstanceTypeM5Xlarge,
		MinCount:     awssdk.Int32(1),
		MaxCount:     awssdk.Int32(1),
		UserData:     awssdk.String(base64.StdEncoding.EncodeToString([]byte(d.Text))),
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: awssdk.String("habit"), Value: awssdk.String(habit)}}},
		},
	})
	require.NoError(w.t, err)
	require.Len(w.t, out.Instances, 1)
	return awssdk.ToString(out.Instances[0].InstanceId)
}

func (w *world) state(id string) types.InstanceStateName {
	w.t.Helper()
	out, err := w.ec2.DescribeInstances(w.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	require.NoError(w.t, err)
	return out.Reservations[0].Instances[0].State.Name
}

// node returns the Node of a machine, or nil.
func (w *world) node(id string) *corev1.Node {
	w.t.Helper()
	nodes, err := w.kube.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for i := range nodes.Items {
		if n := &nodes.Items[i]; n.Spec.ProviderID != "" && n.Spec.ProviderID[len("aws:///us-east-1a/"):] == id {
			return n
		}
	}
	return nil
}

func (w *world) is(id string, kind corev1.NodeConditionType, status corev1.ConditionStatus) bool {
	w.t.Helper()
	return statusOf(w.node(id), kind) == status
}

func statusOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	if n == nil {
		return ""
	}
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func (w *world) attestation(id string) (a nodes.Attestation) {
	w.t.Helper()
	if n := w.node(id); n != nil && n.Annotations[v1alpha1.AnnotationAttested] != "" {
		require.NoError(w.t, json.Unmarshal([]byte(n.Annotations[v1alpha1.AnnotationAttested]), &a))
	}
	return a
}

func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	await.Eventually(w.t, what, is)
}

func taintKeys(n *corev1.Node) (keys []string) {
	for _, taint := range n.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

// TestAMachineBecomesANode is the life of one machine, with a real scheduler and real
// controllers.
func TestAMachineBecomesANode(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	id := w.launch(data(v1alpha1.AL2023), "")
	w.until("it joins", func() bool { return w.node(id) != nil })
	n := w.node(id)
	require.Contains(t, taintKeys(n), v1alpha1.TaintNotReady)
	require.Contains(t, taintKeys(n), "dedicated")
	require.Equal(t, "p", n.Labels[v1alpha1.LabelPool])
	require.Equal(t, "a", n.Labels["team"])
	require.Equal(t, "m5.xlarge", n.Labels[corev1.LabelInstanceTypeStable])
	require.Equal(t, "amd64", n.Labels[corev1.LabelArchStable])
	require.Equal(t, n.Name, n.Labels[corev1.LabelHostname])
	require.Equal(t, "aws:///"+n.Labels[corev1.LabelTopologyZone]+"/"+id, n.Spec.ProviderID)

	w.until("it attests", func() bool { return w.attestation(id).BootID != "" })
	require.Equal(t, []string{"nginx", "example.com/b:1"}, w.attestation(id).Images)
	require.Empty(t, w.attestation(id).Failed)
	first := w.attestation(id).BootID
	require.Equal(t, first, w.node(id).Status.NodeInfo.BootID)
	w.until("it stops itself", func() bool { return w.state(id) == types.InstanceStateNameStopped })
	w.until("its Node is not Ready", func() bool { return w.is(id, corev1.NodeReady, corev1.ConditionUnknown) })
	w.until("the cluster takes note", func() bool { return slices.Contains(taintKeys(w.node(id)), corev1.TaintNodeUnreachable) })
	require.True(t, w.is(id, corev1.NodeNetworkUnavailable, corev1.ConditionFalse), "the condition from before the stop stays")

	// A pod of the scheduler runs on it after the second boot.
	_, err := w.kube.CoreV1().
		ServiceAccounts("default").
		Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "c", Image: "nginx"},
		},
		Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
	}}
	_, err = w.kube.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	w.until("the taint is removed", func() bool { // controllers write taints as well
		n := w.node(id)
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintNotReady })
		_, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err == nil
	})
	before := time.Now().Add(-time.Second)
	_, err = w.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	w.until("it is Ready again", func() bool { return w.is(id, corev1.NodeReady, corev1.ConditionTrue) })
	n = w.node(id)
	require.NotEqual(t, first, n.Status.NodeInfo.BootID)
	for _, c := range n.Status.Conditions {
		require.True(t, c.LastHeartbeatTime.After(before), "%s is from before the start", c.Type)
	}
	phase := func(want corev1.PodPhase) func() bool {
		return func() bool {
			p, err := w.kube.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
			require.NoError(t, err)
			return p.Status.Phase == want
		}
	}
	w.until("the pod runs", phase(corev1.PodRunning))
	// Another that was launched after that warms up and stops: this one had the time.
	other := w.launch(data(v1alpha1.AL2023), "")
	w.until("the other stops itself", func() bool { return w.state(other) == types.InstanceStateNameStopped })
	require.Equal(t, types.InstanceStateNameRunning, w.state(id))
	require.Equal(t, first, w.attestation(id).BootID, "only the first boot warms up")

	_, err = w.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	w.until("the pod is lost", phase(corev1.PodFailed))
	w.until("its Node is not Ready", func() bool { return w.is(id, corev1.NodeReady, corev1.ConditionUnknown) })
	w.until("it is stopped", func() bool { return w.state(id) == types.InstanceStateNameStopped })

	require.NoError(t, w.kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}))
	_, err = w.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	w.until("it joins again", func() bool { return w.is(id, corev1.NodeReady, corev1.ConditionTrue) })
	require.NotEqual(t, n.UID, w.node(id).UID)
	require.Contains(t, taintKeys(w.node(id)), v1alpha1.TaintNotReady, "as it registers")
	require.Empty(t, w.attestation(id), "a Node created again has no attestation")
	_, err = w.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	require.NoError(t, err)
	w.until("its Node is not Ready", func() bool { return w.is(id, corev1.NodeReady, corev1.ConditionUnknown) })
}

// startsAgain starts each machine that stops itself before the next look at EC2.
type startsAgain struct {
	http.RoundTripper

	mu    sync.RWMutex
	ec2   *ec2.Client
	ended atomic.Int64 // stops
}

func (s *startsAgain) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	if form.Get("Action") != "StopInstances" {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.RoundTripper.RoundTrip(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	ids := []string{form.Get("InstanceId.1")}
	for running := false; !running; { // it can be started once it is stopped, and is pending then
		_, err := s.ec2.StartInstances(r.Context(), &ec2.StartInstancesInput{InstanceIds: ids})
		out, failed := s.ec2.DescribeInstances(r.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids})
		if r.Context().Err() != nil || failed != nil {
			return nil, errors.Join(err, failed, response.Body.Close())
		}
		running = err == nil && out.Reservations[0].Instances[0].State.Name == types.InstanceStateNameRunning
	}
	s.ended.Add(1)
	return response, nil
}

// TestAStopBetweenTwoLooksIsABoot starts a machine again before EC2 has shown it as stopped.
func TestAStopBetweenTwoLooksIsABoot(t *testing.T) {
	again := &startsAgain{}
	again.mu.Lock()
	w := newWorldWith(t, nil, func(next http.RoundTripper) http.RoundTripper {
		again.RoundTripper = next
		return again
	})
	again.ec2 = w.ec2
	again.mu.Unlock()
	id := w.launch(data(v1alpha1.AL2023), "")
	w.until("it attests", func() bool { return w.attestation(id).BootID != "" })
	first := w.attestation(id).BootID
	w.until("it boots again", func() bool {
		boot := w.node(id).Status.NodeInfo.BootID
		return boot != first && w.is(id, corev1.NodeReady, corev1.ConditionTrue)
	})
	require.EqualValues(t, 1, again.ended.Load(), "it warms up once")
	require.Equal(t, first, w.attestation(id).BootID, "only the first boot warms up")
	require.Equal(t, types.InstanceStateNameRunning, w.state(id))
}

// TestAMachineHasBadHabits has one machine for each, and one for each template.
func TestAMachineHasBadHabits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a minute of machines")
	}
	habits := map[string]habit{
		"never joins": {
			neverJoins: true,
		},
		"never ready":   {neverReady: true},
		"never attests": {neverAttests: true},
		"never stops":   {neverStops: true},
		"no network":    {neverNetwork: true, neverStops: true},
		"bad image":     {badImages: []string{"nginx"}},
	}
	w := newWorld(t, func(m booted) habit { return habits[m.tags["habit"]] })
	ids := map[string]string{}
	for name := range habits {
		ids[name] = w.launch(data(v1alpha1.AL2), name)
	}
	ids["Bottlerocket"] = w.launch(data(v1alpha1.Bottlerocket), "")
	kept := data(v1alpha1.AL2023)
	kept.SelfStop = false
	ids["kept"] = w.launch(kept, "")

	stopped := func(name string) func() bool {
		return func() bool { return w.state(ids[name]) == types.InstanceStateNameStopped }
	}
	w.until("a machine with a bad image stops", stopped("bad image"))
	require.Equal(t, []string{"nginx"}, w.attestation(ids["bad image"]).Failed)
	require.Equal(t, []string{"example.com/b:1"}, w.attestation(ids["bad image"]).Images)
	for _, name := range []string{"never stops", "no network", "kept"} {
		w.until(name+": attests", func() bool { return w.attestation(ids[name]).BootID != "" })
	}
	for _, name := range []string{"never attests", "Bottlerocket"} {
		w.until(name+": is Ready", func() bool { return w.is(ids[name], corev1.NodeReady, corev1.ConditionTrue) })
		require.Contains(t, taintKeys(w.node(ids[name])), "dedicated", name)
	}
	w.until("it is not Ready", func() bool { return w.is(ids["never ready"], corev1.NodeReady, corev1.ConditionFalse) })
	require.True(t, w.is(ids["never stops"], corev1.NodeNetworkUnavailable, corev1.ConditionFalse))
	require.True(t, w.is(ids["no network"], corev1.NodeNetworkUnavailable, ""))
	// The cluster has not heard of a machine, such as while its API server was away.
	_, err := w.kube.CoreV1().Nodes().Patch(t.Context(), w.node(ids["kept"]).Name, apitypes.StrategicMergePatchType,
		[]byte(`{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}`),
		metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	w.until("it is Ready again", func() bool { return w.is(ids["kept"], corev1.NodeReady, corev1.ConditionTrue) })
	// One that was launched after the others has stopped: they had the time.
	last := w.launch(data(v1alpha1.AL2023), "")
	w.until("the last stops", func() bool { return w.state(last) == types.InstanceStateNameStopped })
	require.Nil(t, w.node(ids["never joins"]))
	for _, name := range []string{"never joins", "never ready", "never attests", "never stops", "no network", "Bottlerocket", "kept"} {
		require.Equal(t, types.InstanceStateNameRunning, w.state(ids[name]), name)
	}
	for _, name := range []string{"never ready", "never attests", "Bottlerocket"} {
		require.Empty(t, w.attestation(ids[name]), name)
	}
}
