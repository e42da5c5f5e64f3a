// Package machines makes machines of an EC2 without hardware become Nodes, for tests and
// the demo, or this process one of its own (Process). A machine that runs joins with the labels and taints of its user data, turns
// Ready and runs the pods that are bound to it; at its first boot it does what the script
// of its user data says. A machine that does not run any more takes its readiness back.
//
// The package userdata writes the user data that is read here. A machine with other user
// data never joins.
package machines

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// The times between two looks.
const (
	pollEvery  = 100 * time.Millisecond
	retryEvery = 200 * time.Millisecond
	// leaseEvery is as often as a kubelet renews its lease; its Node is taken for dead
	// after 40 s.
	leaseEvery = 10 * time.Second
)

// Simulator makes machines become Nodes. No other may manage these Nodes: a kwok in the
// same cluster manages all (kubetest.Options.Nodes must be 0).
type Simulator struct {
	// EC2 has the machines. All of them are taken. Give it no faults meant for others: it is
	// also the hardware. Required.
	EC2 *ec2.Client
	// Kubernetes is the cluster that the machines join. Required.
	Kubernetes *rest.Config
	// Boot is the time from running to a Ready Node. Zero: at once.
	Boot time.Duration
	// Warmup is the time from the first Ready to the first image. Zero: at once.
	Warmup time.Duration
	// Pull is the time that each image takes. Zero: at once.
	Pull time.Duration
	// Habit returns, at each boot, the faults of a machine. It may be called
	// concurrently. Nil: no faults.
	Habit func(Machine) Habit
	// CloudController taints the Nodes of machines that are off, and removes the taint once
	// they are Ready, as a cloud-controller-manager does.
	CloudController bool
	// Logger may be nil: silent.
	Logger *slog.Logger
}

// Machine is a machine at a boot.
type Machine struct {
	ID, Type, Zone string
	// Cloud begins the providerID of its Node. Empty: aws.
	Cloud string
	// Tags are the tags at the time of the boot.
	Tags map[string]string
	// Boot counts the boots, from 1.
	Boot int
}

// Habit is the faults of a machine. The zero value is a machine that works.
type Habit struct {
	// NeverJoins makes no Node.
	NeverJoins bool
	// NeverReady joins, and its Node stays NotReady. It pulls, attests and stops
	// nothing.
	NeverReady bool
	// NeverNetwork leaves the condition NetworkUnavailable as it is on the Node.
	NeverNetwork bool
	// NeverAttests pulls images, records nothing and stays on.
	NeverAttests bool
	// NeverStops attests, and stays on.
	NeverStops bool
	// Clock is how far the clock of the machine is ahead of the others.
	Clock time.Duration
	// FlapEvery is how long the Node is Ready after each boot before it is not for FlapFor,
	// and again. Zero: it stays Ready.
	FlapEvery, FlapFor time.Duration
	// BadImages are those that it cannot pull.
	BadImages []string
}

// run is what a Simulator has while it runs.
type run struct {
	simulator *Simulator
	client    *kubernetes.Clientset
	log       *slog.Logger
	pods      cache.SharedIndexInformer
	// stop is how a machine stops itself.
	stop func(ctx context.Context, id string) error

	mu       sync.Mutex
	machines map[string]*machine // by id
	nodes    map[string]*machine // by the name of the Node
	wait     sync.WaitGroup
}

// Start runs machines until ctx ends, and returns nil then. Errors of EC2 and of the API
// server are logged, and what failed is tried again.
func (s *Simulator) Start(ctx context.Context) error {
	if s.EC2 == nil || s.Kubernetes == nil {
		return errors.New("machines: EC2 and Kubernetes must be set")
	}
	r, err := s.newRun(fields.Everything())
	if err != nil {
		return err
	}
	r.stop = func(ctx context.Context, id string) error {
		_, err := s.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}})
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	r.wait.Go(func() { r.pods.Run(ctx.Done()) })
	defer r.wait.Wait()
	defer cancel()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "looking at the machines", slog.Any("err", err))
		}
		if !pause.For(ctx, pollEvery) {
			return nil
		}
	}
}

// newRun returns a run whose machines have the selected pods.
func (s *Simulator) newRun(pods fields.Selector) (*run, error) {
	client, err := kubernetes.NewForConfig(s.Kubernetes)
	if err != nil {
		return nil, err
	}
	r := &run{simulator: s, client: client, log: s.Logger, machines: map[string]*machine{}, nodes: map[string]*machine{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r, r.watchPods(pods)
}

const byNode = "node"

// watchPods prepares the watch of pods, by their Nodes.
func (r *run) watchPods(selected fields.Selector) error {
	nodeOf := func(o any) string {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if pod, ok := o.(*corev1.Pod); ok {
			return pod.Spec.NodeName
		}
		return ""
	}
	source := cache.NewListWatchFromClient(r.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll, selected)
	r.pods = cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{byNode: func(o any) ([]string, error) {
		return []string{nodeOf(o)}, nil
	}})
	wake := func(o any) {
		r.mu.Lock()
		m := r.nodes[nodeOf(o)]
		r.mu.Unlock()
		if m != nil {
			m.poke()
		}
	}
	_, err := r.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }})
	return err
}

// look passes to each machine the state that EC2 reports for it.
func (r *run) look(ctx context.Context) error {
	pages := ec2.NewDescribeInstancesPaginator(r.simulator.EC2, &ec2.DescribeInstancesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, reservation := range page.Reservations {
			for i := range reservation.Instances {
				if err := r.tell(ctx, &reservation.Instances[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *run) tell(ctx context.Context, instance *types.Instance) error {
	id, running := aws.ToString(instance.InstanceId), instance.State != nil && instance.State.Name == types.InstanceStateNameRunning
	r.mu.Lock()
	m := r.machines[id]
	r.mu.Unlock()
	if m == nil {
		if !running {
			return nil // not yet, or no more
		}
		launched, err := r.launched(ctx, id)
		if err != nil {
			return err
		}
		m = newMachine(r, instance, launched)
		r.wait.Go(func() { m.live(ctx) })
	}
	started := aws.ToTime(instance.LaunchTime)
	if running == m.running && (!running || started.Equal(m.started)) {
		return nil
	}
	m.running, m.started = running, started
	tags := map[string]string{}
	for _, tag := range instance.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	m.tell(power{on: running, tags: tags})
	return nil
}

// launched returns what a machine was launched with.
func (r *run) launched(ctx context.Context, id string) (launch, error) {
	out, err := r.simulator.EC2.DescribeInstanceAttribute(
		ctx,
		&ec2.DescribeInstanceAttributeInput{InstanceId: aws.String(id), Attribute: types.InstanceAttributeNameUserData},
	)
	if err != nil {
		return launch{}, err
	}
	var encoded string
	if out.UserData != nil {
		encoded = aws.ToString(out.UserData.Value)
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return launch{}, err
	}
	return r.read(ctx, id, string(text)), nil
}

// read returns what the user data of a machine says. A machine whose user data is wrong never
// joins.
func (r *run) read(ctx context.Context, id, text string) launch {
	l, err := parse(text)
	if err != nil {
		r.log.WarnContext(ctx, "a machine that never joins", slog.String("instance", id), slog.Any("err", err))
		return launch{}
	}
	return l
}
