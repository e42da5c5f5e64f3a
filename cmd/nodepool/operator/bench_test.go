package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	nodepool "github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// image is one that the emulator knows.
const image = "ami-12c6146b"

// cell is a Kubernetes and an EC2, whose machines become Nodes. Each scenario has a pool in
// it.
type cell struct {
	cluster *kubetest.Cluster
	access  *rest.Config // as the operator's account
	kube    *kubernetes.Clientset
	objects dynamic.Interface
	ec2     *ec2.Client // without faults
	url     string
	subnets []string // of two zones
	group   string
	name    string // of the cluster
	boot    time.Duration

	mu     sync.Mutex
	habits map[string]func(booted) habit // by pool
}

// newCell starts a cell. The tests that do are not parallel: thirteen Kubernetes beside each other
// leave nothing of the machine, and a machine that boots for a minute is one too many. Scenarios
// that share a cell are.
func newCell(t *testing.T) *cell {
	t.Helper()
	return newCellAt(t, "test", ec2test.Start(t, ec2test.Options{}).URL, quickBoot)
}

// quickBoot is how long a machine takes from running to a Ready Node where no bound is judged.
const quickBoot = 300 * time.Millisecond

// newCellAt makes a cell in an EC2 that others may use too, whose machines boot so long.
func newCellAt(t *testing.T, name, url string, boot time.Duration) *cell {
	t.Helper()
	c := &cell{
		cluster: kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true}),
		url:     url,
		ec2:     aws.NewClient(awsConfig(url, nil), nil),
		name:    name,
		boot:    boot,
		habits:  map[string]func(booted) habit{},
	}
	text, err := nodepool.Manifests{Image: "nodepool", ClusterName: name}.YAML()
	require.NoError(t, err)
	require.NoError(t, c.cluster.Apply(t.Context(), text))
	_, err = c.cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(t, err)
	// The operator runs in the test; a pod of it would keep a machine busy.
	_, err = c.cluster.Kubectl(
		t.Context(),
		"delete",
		"deployment",
		"-n",
		nodepool.Namespace,
		nodepool.Account,
		"--cascade=foreground",
		"--timeout=60s",
	)
	require.NoError(t, err)
	c.access, _, err = c.cluster.ServiceAccount(t.Context(), nodepool.Namespace, nodepool.Account)
	require.NoError(t, err)
	c.kube, c.objects = kubernetes.NewForConfigOrDie(c.cluster.Config), dynamic.NewForConfigOrDie(c.cluster.Config)
	c.prepare(t)
	c.machines(t, c.ec2)
	return c
}

// home is the region of the operators of the tests.
const home = "us-east-1"

func awsConfig(url string, client awssdk.HTTPClient) awssdk.Config {
	return awssdk.Config{
		Region: home, BaseEndpoint: awssdk.String(url), HTTPClient: client,
		Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
			return awssdk.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

// prepare finds the network of the account.
func (c *cell) prepare(t *testing.T) {
	t.Helper()
	c.subnets, c.group = network(t, c.ec2)
	profiles := iam.NewFromConfig(awsConfig(c.url, nil))
	_, err := profiles.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("nodes")})
	if _, exists := errors.AsType[*iamtypes.EntityAlreadyExistsException](err); !exists {
		require.NoError(t, err)
	}
}

// network returns the first two subnets of a region, and a security group.
func network(t *testing.T, in *ec2.Client) (subnets []string, group string) {
	t.Helper()
	out, err := in.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	require.NoError(t, err)
	slices.SortFunc(out.Subnets, func(a, b types.Subnet) int { return strings.Compare(*a.AvailabilityZone, *b.AvailabilityZone) })
	groups, err := in.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{})
	require.NoError(t, err)
	return []string{*out.Subnets[0].SubnetId, *out.Subnets[1].SubnetId}, *groups.SecurityGroups[0].GroupId
}

// machines runs what stands behind the machines of a region.
func (c *cell) machines(t *testing.T, in *ec2.Client) {
	t.Helper()
	s := &simulator{
		ec2: in, config: c.cluster.Config, boot: c.boot, warmup: 100 * time.Millisecond, pull: 10 * time.Millisecond,
		log:             slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		cloudController: true,
		habit: func(m booted) habit {
			if m.tags["stratos.sh/cluster"] != c.name {
				return habit{neverJoins: true} // it joins another cluster
			}
			is := habit{}
			c.mu.Lock()
			defer c.mu.Unlock()
			if of := c.habits[m.tags["stratos.sh/pool"]]; of != nil {
				is = of(m)
			}
			is.clock = clockOf(m.id)
			return is
		},
	}
	run(t, s.run)
}

// clockOf is how far the clock of a machine is ahead: up to ten minutes, or behind.
func clockOf(id string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return time.Duration(h.Sum32()%1200)*time.Second - 10*time.Minute
}

// run runs something in the background until the test or stop ends it.
func run(t *testing.T, start func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// running is one process of the operator.
type running struct {
	net     *applytest.Transport
	wire    *wire
	address string
	metrics string
	stop    func()
}

// start starts an operator.
func (c *cell) start(t *testing.T, change func(*nodepool.Operator)) *running {
	t.Helper()
	return c.startWith(t, &running{net: &applytest.Transport{}, wire: &wire{}}, change)
}

// begin starts an operator that is killed at a write.
func (c *cell) begin(t *testing.T, l *life) *running {
	t.Helper()
	return c.startWith(t, &running{net: &applytest.Transport{Fault: l.api}, wire: &wire{asked: l.cloud}}, nil)
}

// startWith starts an operator whose ways to Kubernetes and EC2 have faults already.
func (c *cell) startWith(t *testing.T, r *running, change func(*nodepool.Operator)) *running {
	t.Helper()
	r.wire.calls = map[string]int{}
	access := rest.CopyConfig(c.access)
	access.Wrap(r.net.Wrap)
	address, metrics := make(chan string, 1), make(chan string, 1)
	o := &nodepool.Operator{
		Kubernetes: access, Namespace: nodepool.Namespace, Alone: true, ClusterName: c.name,
		ClusterEndpoint: "https://example.com", ClusterCA: "Yw==", ClusterCIDR: "10.100.0.0/16",
		Region: home, Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", Transition: 500 * time.Millisecond, Instance: "test",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		OpenRegion: func(_ context.Context, region string, _ nodepool.Called) (nodepool.Region, error) {
			limits, rest := aws.Limits(1, 1)
			config := awsConfig(c.url, r.wire)
			config.Region = region
			client := aws.NewClient(config, &cloud.Limiter{Limits: limits, Rest: rest})
			return nodepool.Region{Provider: &aws.Provider{EC2: client}, Resolver: &aws.Resolver{EC2: client, IAM: iam.NewFromConfig(config)}}, nil
		},
		OnListen:        func(at net.Addr) { address <- at.String() },
		OnListenMetrics: func(at net.Addr) { metrics <- at.String() },
	}
	if change != nil {
		change(o)
	}
	r.stop = run(t, o.Start)
	r.address, r.metrics = <-address, <-metrics
	return r
}

// wire is the way to EC2.
type wire struct {
	// asked is asked before each call, if set, whether it is sent, and whether its answer
	// arrives.
	asked func(action string) (sent, answered bool)
	mu    sync.Mutex
	fault func(action string, form url.Values) wireFault
	calls map[string]int
	seen  []url.Values
}

// wireFault is what goes wrong with one call.
type wireFault struct {
	Code   string // an error of EC2
	Status int    // of the answer; 0: 503 for one that is lost, 400 with a Code
	Lost   bool   // the call is done, its answer is lost

	// Nothing answers DescribeInstances as if there were no machine: a machine that was
	// just launched is not in the list yet.
	Nothing bool
}

var errLost = errors.New("connection reset")

// Do implements [awssdk.HTTPClient].
func (w *wire) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	action := form.Get("Action")
	w.mu.Lock()
	w.calls[action]++
	w.seen = append(w.seen, form)
	fault := w.fault
	w.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	f := wireFault{}
	if w.asked != nil {
		sent, answered := w.asked(action)
		if !sent {
			return nil, errLost
		}
		f.Lost = !answered
	}
	if fault != nil {
		f = fault(action, form)
	}
	if f.Nothing {
		const text = `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId><reservationSet/></DescribeInstancesResponse>`
		return &http.Response{
			StatusCode: http.StatusOK,
			Header:     http.Header{"Content-Type": {"text/xml"}},
			Body:       io.NopCloser(strings.NewReader(text)),
			Request:    r,
		}, nil
	}
	if f.Code != "" {
		status := f.Status
		if status == 0 {
			status = http.StatusBadRequest
		}
		text := fmt.Sprintf(
			"<Response><Errors><Error><Code>%s</Code><Message>by the test</Message></Error></Errors><RequestID>1</RequestID></Response>",
			f.Code,
		)
		return &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {"text/xml"}},
			Body:       io.NopCloser(strings.NewReader(text)),
			Request:    r,
		}, nil
	}
	response, err := http.DefaultClient.Do(r)
	if err == nil && f.Lost {
		_ = response.Body.Close()
		return nil, errLost
	}
	return response, err
}

// count returns how many calls of an action there were.
func (w *wire) count(actions ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, action := range actions {
		n += w.calls[action]
	}
	return n
}

// set changes what goes wrong.
func (w *wire) set(fault func(action string, form url.Values) wireFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// bench is one scenario: a pool and a class of one name, and a namespace for its pods.
type bench struct {
	*testing.T
	*cell

	name string
}

func (c *cell) bench(t *testing.T, name string) *bench {
	t.Helper()
	b := &bench{T: t, cell: c, name: name}
	_, err := c.kube.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return b
}

// habit says how the machines of the scenario behave.
func (b *bench) habit(of func(booted) habit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.habits[b.name] = of
}

// class makes the class.
func (b *bench) class() {
	b.Helper()
	b.apply(
		fmt.Sprintf(
			"{apiVersion: stratos.sh/v1alpha1, kind: AWSNodeClass, metadata: {name: %s}, spec: {bootstrapTemplate: AL2023, instanceType: m5.xlarge, architecture: x86_64, amiSelector: {id: %s}, subnetIds: [%s], securityGroupIds: [%s], iamInstanceProfile: nodes}}",
			b.name,
			image,
			strings.Join(b.subnets, ", "),
			b.group,
		),
	)
}

// pool makes the pool, with a spec such as "poolSize: 3, minStandby: 1".
func (b *bench) pool(spec string) {
	b.Helper()
	text := spec
	if !strings.Contains(spec, "reconciliationInterval") {
		text += ", reconciliationInterval: 5s"
	}
	if !strings.Contains(spec, "template:") {
		text += ", " + b.template("")
	}
	b.apply(fmt.Sprintf("{apiVersion: stratos.sh/v1alpha1, kind: NodePool, metadata: {name: %s}, spec: {%s}}", b.name, text))
}

// template returns the template of a pool, with more fields.
func (b *bench) template(more string) string {
	return fmt.Sprintf("template: {nodeClassRef: {kind: AWSNodeClass, name: %s}%s}", b.name, more)
}

func (b *bench) apply(text string) {
	b.Helper()
	require.NoError(b, b.cluster.Apply(b.Context(), text))
}

// read returns the pool.
func (b *bench) read() *v1alpha1.NodePool {
	b.Helper()
	o, err := b.objects.Resource(v1alpha1.GroupVersion().WithResource("nodepools")).Get(b.Context(), b.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b, err)
	text, err := json.Marshal(o.Object)
	require.NoError(b, err)
	p := &v1alpha1.NodePool{}
	require.NoError(b, json.Unmarshal(text, p))
	return p
}

// counts returns standby, running and all machines by the status.
func (b *bench) counts() [3]int32 {
	b.Helper()
	p := b.read()
	if p == nil {
		return [3]int32{}
	}
	return [3]int32{p.Status.Standby, p.Status.Running, p.Status.Total}
}

func (b *bench) condition(kind string) metav1.Condition {
	b.Helper()
	if p := b.read(); p != nil {
		if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
			return *c
		}
	}
	return metav1.Condition{}
}

// standby waits for standby machines, in a pool that is Ready.
func (b *bench) standby(n int32) {
	b.Helper()
	b.eventually(fmt.Sprintf("%d on standby", n), func() bool {
		return b.counts()[0] == n && b.condition("Ready").Status == metav1.ConditionTrue
	})
}

// pods makes pods that run on machines of the pool alone, with requests such as
// "cpu: 500m".
func (b *bench) pods(names []string, requests, more string) {
	b.Helper()
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(
			&all,
			"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, spec: {terminationGracePeriodSeconds: 0, nodeSelector: {stratos.sh/pool: %s}, containers: [{name: c, image: x, resources: {requests: {%s}}}]%s}}\n---\n",
			name,
			b.name,
			b.name,
			b.name,
			requests,
			more,
		)
	}
	b.apply(all.String())
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%02d", prefix, i)
	}
	return out
}

// bound returns how many pods of the scenario have a Node.
func (b *bench) bound() int {
	b.Helper()
	list, err := b.kube.CoreV1().Pods(b.name).List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	n := 0
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// delete deletes the pool, and does not wait.
func (b *bench) delete() {
	b.Helper()
	require.NoError(
		b,
		b.objects.Resource(v1alpha1.GroupVersion().WithResource("nodepools")).Delete(b.Context(), b.name, metav1.DeleteOptions{}),
	)
}

func (b *bench) removePods(names ...string) {
	b.Helper()
	for _, name := range names {
		err := b.kube.CoreV1().Pods(b.name).Delete(b.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if !apierrors.IsNotFound(err) {
			require.NoError(b, err)
		}
	}
}

// nodes returns the Nodes of the pool, by name.
func (b *bench) nodes() []corev1.Node {
	b.Helper()
	list, err := b.kube.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{LabelSelector: "stratos.sh/pool=" + b.name})
	require.NoError(b, err)
	return list.Items
}

// in returns the Nodes of the pool in a state.
func (b *bench) in(state string) []corev1.Node {
	b.Helper()
	return slices.DeleteFunc(b.nodes(), func(n corev1.Node) bool { return n.Labels[v1alpha1.LabelState] != state })
}

// instances returns the machines of the pool that are not terminated.
func (b *bench) instances() []types.Instance {
	b.Helper()
	out, err := b.ec2.DescribeInstances(b.Context(), &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{
			Name:   awssdk.String("tag:stratos.sh/pool"),
			Values: []string{b.name},
		},
		{Name: awssdk.String("tag:stratos.sh/cluster"), Values: []string{b.cell.name}},
	}})
	require.NoError(b, err)
	var all []types.Instance
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if i.State.Name != types.InstanceStateNameTerminated && i.State.Name != types.InstanceStateNameShuttingDown {
				all = append(all, i)
			}
		}
	}
	return all
}

// state returns the state of a machine in EC2.
func (b *bench) state(id string) types.InstanceStateName {
	b.Helper()
	out, err := b.ec2.DescribeInstances(b.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	require.NoError(b, err)
	return out.Reservations[0].Instances[0].State.Name
}

// events returns the reasons of the Events about an object of the scenario.
func (b *bench) events(kind, name string) (reasons []string) {
	b.Helper()
	for _, e := range b.eventsAbout(kind, name) {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// noMachineFits returns the notes of the Events with that reason about a pod of the scenario.
func (b *bench) noMachineFits(pod string) (notes []string) {
	b.Helper()
	for _, e := range b.eventsAbout("Pod", pod) {
		if e.Reason == "NoMachineFits" {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// eventsAbout lists the Events about an object: one without a namespace, or one in the
// namespace of the scenario. Pods of other scenarios have the same names.
func (b *bench) eventsAbout(kind, name string) []eventsv1.Event {
	b.Helper()
	list, err := b.kube.EventsV1().
		Events("").
		List(b.Context(), metav1.ListOptions{FieldSelector: "regarding.kind=" + kind + ",regarding.name=" + name})
	require.NoError(b, err)
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Namespace != "" && e.Regarding.Namespace != b.name
	})
}

// eventReported waits for an Event about an object.
func (b *bench) eventReported(kind, name, reason string) {
	b.Helper()
	b.eventually("the Event "+reason, func() bool { return slices.Contains(b.events(kind, name), reason) })
}

// eventually waits until something holds, and shows the cluster and the machines if it
// fails.
func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	b.within(await.Moment, what, holds)
}

func (b *bench) within(bound time.Duration, what string, holds func() bool) {
	b.Helper()
	await.Until(b, bound, what, holds, func() string {
		out, _ := b.cluster.Kubectl(b.Context(), "get", "nodes,pods,events", "-A", "-o", "wide", "--show-labels")
		describe, _ := b.cluster.Kubectl(b.Context(), "get", "np,awsnc", b.name, "-o", "yaml")
		for _, i := range b.instances() {
			out += fmt.Sprintf("%s %s %v\n", *i.InstanceId, i.State.Name, i.Tags)
		}
		return b.passes() + out + "\n" + describe
	})
}

// passes are the conditions of the pool, and where each pass that is under way has got to: one that hangs
// shows nothing else.
func (b *bench) passes() string {
	b.Helper()
	var out strings.Builder
	for _, c := range b.read().Status.Conditions {
		fmt.Fprintf(&out, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	stacks := make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "(*operator).reconcile") {
			lines := strings.Split(stack, "\n")
			out.WriteString("a pass: ")
			for i := 1; i < len(lines); i += 2 { // each function has its place in the next line
				if i == 1 || strings.Contains(lines[i], "/trueup/") {
					of, _, _ := strings.Cut(path.Base(lines[i]), "(0x")
					out.WriteString(of + " < ")
				}
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}
