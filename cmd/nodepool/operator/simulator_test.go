package operator_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"slices"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/kubelet"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

const (
	// pollEvery is the time between two looks, or pollShare times what one takes: the emulator of
	// EC2 is slow, and a machine with much to do has more than one.
	pollEvery = 100 * time.Millisecond
	pollShare = 5
	// retryEvery is the time between two attempts.
	retryEvery = 200 * time.Millisecond
)

// simulator makes the machines of an EC2 become Nodes. No other may manage these Nodes: a kwok in
// the same cluster manages all (kubetest.Options.Nodes must be 0).
type simulator struct {
	// ec2 has the machines. All of them are taken. Give it no faults meant for others: it is
	// also the hardware.
	ec2 *ec2.Client
	// config is of the cluster that the machines join.
	config *rest.Config
	// boot is the time from running to a Ready Node, warmup that from the first Ready to the first
	// image, and pull that of each image.
	boot, warmup, pull time.Duration
	// habit returns, at each boot, the faults of a machine. It may be called
	// concurrently. Nil: no faults.
	habit func(booted) habit
	// cloudController taints the Nodes of machines that are off, and removes the taint once
	// they are Ready, as a cloud-controller-manager does.
	cloudController bool
	log             *slog.Logger

	client  *kubernetes.Clientset
	cluster *kubelet.Cluster
	all     map[string]*powered // by id
	wait    sync.WaitGroup
}

// booted is a machine at a boot.
type booted struct {
	id string
	// tags are the tags at the time of the boot.
	tags map[string]string
	// boot counts the boots, from 1.
	boot int
}

// power is what EC2 says of a machine.
type power struct {
	on   bool
	tags map[string]string
}

// powered is a machine of EC2. Its goroutine does what happens to its Node.
type powered struct {
	of     *simulator
	is     kubelet.Machine
	warmed bool
	boot   int
	// running is what EC2 reported last, and started its launch time, which each start sets: a
	// machine that was off between two looks runs in both. Only the look at the machines uses
	// them.
	running bool
	started time.Time
	changes chan power
}

// run runs machines until ctx ends, and returns nil then. Errors of EC2 and of the API
// server are logged, and what failed is tried again.
func (s *simulator) run(ctx context.Context) (err error) {
	s.all = map[string]*powered{}
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if s.cluster, err = kubelet.NewCluster(s.config, fields.Everything(), s.log); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	s.wait.Go(func() { s.cluster.Run(ctx) })
	defer s.wait.Wait()
	defer cancel()
	for {
		began := time.Now()
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "looking at the machines", slog.Any("err", err))
		}
		if !pause.For(ctx, max(pollEvery, pollShare*time.Since(began))) {
			return nil
		}
	}
}

// look passes to each machine the state that EC2 reports for it.
func (s *simulator) look(ctx context.Context) error {
	pages := ec2.NewDescribeInstancesPaginator(s.ec2, &ec2.DescribeInstancesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, reservation := range page.Reservations {
			for i := range reservation.Instances {
				if err := s.see(ctx, &reservation.Instances[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *simulator) see(ctx context.Context, instance *types.Instance) error {
	id, running := awssdk.ToString(instance.InstanceId), instance.State != nil && instance.State.Name == types.InstanceStateNameRunning
	m := s.all[id]
	if m == nil {
		if !running {
			return nil // not yet, or no more
		}
		launch, err := s.launched(ctx, id)
		if err != nil {
			return err
		}
		m = s.buy(instance, launch)
		s.all[id] = m
		s.wait.Go(func() { m.live(ctx) })
	}
	started := awssdk.ToTime(instance.LaunchTime)
	if running == m.running && (!running || started.Equal(m.started)) {
		return nil
	}
	m.running, m.started = running, started
	tags := map[string]string{}
	for _, tag := range instance.Tags {
		tags[awssdk.ToString(tag.Key)] = awssdk.ToString(tag.Value)
	}
	m.tell(power{on: running, tags: tags})
	return nil
}

// launched returns what a machine was launched with. One whose user data is wrong never joins.
func (s *simulator) launched(ctx context.Context, id string) (kubelet.Launch, error) {
	out, err := s.ec2.DescribeInstanceAttribute(
		ctx,
		&ec2.DescribeInstanceAttributeInput{InstanceId: awssdk.String(id), Attribute: types.InstanceAttributeNameUserData},
	)
	if err != nil {
		return kubelet.Launch{}, err
	}
	var encoded string
	if out.UserData != nil {
		encoded = awssdk.ToString(out.UserData.Value)
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return kubelet.Launch{}, err
	}
	launch, err := kubelet.Read(string(text))
	if err != nil {
		s.log.WarnContext(ctx, "a machine that never joins", slog.String("instance", id), slog.Any("err", err))
	}
	return launch, nil
}

func (s *simulator) buy(instance *types.Instance, launch kubelet.Launch) *powered {
	id := awssdk.ToString(instance.InstanceId)
	m := &powered{of: s, changes: make(chan power, 1), is: kubelet.Machine{
		ID: id, Type: string(instance.InstanceType), Node: "node-" + id, Arch: "amd64", IP: awssdk.ToString(instance.PrivateIpAddress),
		Launch: launch,
	}}
	if instance.Placement != nil {
		m.is.Zone = awssdk.ToString(instance.Placement.AvailabilityZone)
	}
	if instance.Architecture == types.ArchitectureValuesArm64 {
		m.is.Arch = "arm64"
	}
	return m
}

// tell sends the machine a power state. It replaces one that the machine has not read yet.
func (m *powered) tell(p power) {
	select {
	case <-m.changes:
	default:
	}
	m.changes <- p
}

// live is the life of a machine, until ctx ends.
func (m *powered) live(ctx context.Context) {
	for {
		var p power
		select {
		case <-ctx.Done():
			return
		case p = <-m.changes:
		}
		for p.on {
			m.boot++
			m.is.BootID = string(uuid.NewUUID())
			var h habit
			if m.of.habit != nil {
				h = m.of.habit(booted{id: m.is.ID, tags: p.tags, boot: m.boot})
			}
			k := m.of.cluster.Add(m.is)
			k.Report = h.report
			boot, off := context.WithCancel(ctx)
			var done sync.WaitGroup
			done.Go(func() { m.on(boot, k, h) })
			select {
			case <-ctx.Done():
			case p = <-m.changes:
			}
			off()
			done.Wait()
			if ctx.Err() != nil {
				return
			}
			m.off(ctx, k)
		}
	}
}

// on is a machine that runs, until ctx ends.
func (m *powered) on(ctx context.Context, k *kubelet.Kubelet, h habit) {
	if !pause.For(ctx, m.of.boot) || h.neverJoins || !m.is.Launch.Joins {
		return
	}
	if !k.Try(ctx, "joining", func() error { return k.Join(ctx) }) {
		return
	}
	var done sync.WaitGroup
	defer done.Wait()
	done.Go(func() { k.Renew(ctx) })
	if h.neverReady {
		return
	}
	done.Go(func() { k.RunPods(ctx) })
	done.Go(func() { flap(ctx, k, h) })
	if m.of.cloudController &&
		!k.Try(ctx, "removing the taint of a machine that is off", func() error { return m.taint(ctx, false) }) {
		return
	}
	if m.is.Launch.Warms && !m.warmed {
		m.warmed = true
		m.warm(ctx, k, h)
	}
}

// flap takes the readiness of a machine that runs back for a while, again and again.
func flap(ctx context.Context, k *kubelet.Kubelet, h habit) {
	silent := h
	silent.neverReady = true
	for h.flapEvery > 0 && pause.For(ctx, h.flapEvery) {
		for _, h := range []habit{silent, h} {
			if !k.Try(ctx, "changing its readiness", func() error {
				status := k.Status()
				h.report(&status)
				return k.PatchStatus(ctx, status)
			}) || h.neverReady && !pause.For(ctx, h.flapFor) {
				return
			}
		}
	}
}

// warm is what the script of the user data does.
func (m *powered) warm(ctx context.Context, k *kubelet.Kubelet, h habit) {
	if !pause.For(ctx, m.of.warmup+time.Duration(len(m.is.Launch.Images))*m.of.pull) || h.neverAttests ||
		!k.Try(ctx, "attesting", func() error { return k.Attest(ctx, h.attestation(m.is)) }) {
		return
	}
	if h.neverStops || !m.is.Launch.Stops {
		return
	}
	k.Try(ctx, "stopping itself", func() error {
		_, err := m.of.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{m.is.ID}})
		return err
	})
}

// off takes readiness back, until the machine is on again. The Node of a machine that is
// off may be gone; it is not made again.
func (m *powered) off(ctx context.Context, k *kubelet.Kubelet) {
	for {
		err := k.Withdraw(ctx)
		if err == nil && m.of.cloudController {
			err = m.taint(ctx, true)
		}
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		m.of.log.WarnContext(ctx, "cannot set node not ready", slog.String("node", m.is.Node), slog.Any("err", err))
		if len(m.changes) > 0 || !pause.For(ctx, retryEvery) {
			return
		}
	}
}

// taint puts the taint of a cloud-controller-manager on the Node of a machine that is off,
// or removes it.
func (m *powered) taint(ctx context.Context, off bool) error {
	shutdown := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := m.of.client.CoreV1().Nodes().Get(ctx, m.is.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := len(n.Spec.Taints)
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&shutdown) })
		if off {
			n.Spec.Taints = append(n.Spec.Taints, shutdown)
		}
		if len(n.Spec.Taints) == before {
			return nil
		}
		_, err = m.of.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// habit is the faults of a machine. The zero value is a machine that works.
type habit struct {
	// neverJoins makes no Node.
	neverJoins bool
	// neverReady joins, and its Node stays NotReady. It pulls, attests and stops
	// nothing.
	neverReady bool
	// neverNetwork leaves the condition NetworkUnavailable as it is on the Node.
	neverNetwork bool
	// neverAttests pulls images, records nothing and stays on.
	neverAttests bool
	// neverStops attests, and stays on.
	neverStops bool
	// clock is how far the clock of the machine is ahead of the others.
	clock time.Duration
	// flapEvery is how long the Node is Ready after each boot before it is not for flapFor,
	// and again. Zero: it stays Ready.
	flapEvery, flapFor time.Duration
	// badImages are those that it cannot pull.
	badImages []string
}

// report changes the status that a machine writes.
func (h habit) report(s *corev1.NodeStatus) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && (h.neverReady || h.neverNetwork)
	})
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type == corev1.NodeReady && h.neverReady {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready"
		}
		c.LastHeartbeatTime = metav1.NewTime(c.LastHeartbeatTime.Add(h.clock))
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(h.clock))
	}
}

// attestation is what the script of the user data records.
func (h habit) attestation(m kubelet.Machine) nodes.Attestation {
	a := nodes.Attestation{BootID: m.BootID}
	for _, name := range m.Launch.Images {
		if slices.Contains(h.badImages, name) {
			a.Failed = append(a.Failed, name)
		} else {
			a.Images = append(a.Images, name)
		}
	}
	return a
}
