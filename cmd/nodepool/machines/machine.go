package machines

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// power is what EC2 says of a machine.
type power struct {
	on   bool
	tags map[string]string
}

// machine is one of EC2. Its goroutine does what happens to its Node.
type machine struct {
	run *run
	Machine
	launch launch
	node   string
	arch   string
	ip     string
	// running is what EC2 reported last, and started its launch time, which each start sets: a
	// machine that was off between two looks runs in both. Only the look at the machines uses
	// them.
	running bool
	started time.Time
	changes chan power
	wake    chan struct{}
	warmed  bool
	bootID  string
}

// add makes a machine, which gets its pods from then on.
func (r *run) add(is Machine, l launch, ip string) *machine {
	m := &machine{
		run: r, Machine: is, launch: l, node: "node-" + is.ID, arch: "amd64", ip: ip,
		changes: make(chan power, 1), wake: make(chan struct{}, 1),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machines[m.ID], r.nodes[m.node] = m, m
	return m
}

func newMachine(r *run, instance *types.Instance, l launch) *machine {
	is := Machine{ID: aws.ToString(instance.InstanceId), Type: string(instance.InstanceType)}
	if instance.Placement != nil {
		is.Zone = aws.ToString(instance.Placement.AvailabilityZone)
	}
	m := r.add(is, l, aws.ToString(instance.PrivateIpAddress))
	if instance.Architecture == types.ArchitectureValuesArm64 {
		m.arch = "arm64"
	}
	return m
}

// tell sends the machine a power state. It replaces one that the machine has not read yet.
func (m *machine) tell(p power) {
	select {
	case <-m.changes:
	default:
	}
	m.changes <- p
}

// poke makes the machine look at its pods.
func (m *machine) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// live is the life of a machine, until ctx ends.
func (m *machine) live(ctx context.Context) {
	for {
		var p power
		select {
		case <-ctx.Done():
			return
		case p = <-m.changes:
		}
		for p.on {
			m.Boot++
			m.Tags = p.tags
			boot, off := context.WithCancel(ctx)
			var done sync.WaitGroup
			done.Go(func() { m.boot(boot) })
			select {
			case <-ctx.Done():
			case p = <-m.changes:
			}
			off()
			done.Wait()
			if ctx.Err() != nil {
				return
			}
			m.off(ctx)
		}
	}
}

// boot is a machine that runs, until ctx ends.
func (m *machine) boot(ctx context.Context) {
	var habit Habit
	if m.run.simulator.Habit != nil {
		habit = m.run.simulator.Habit(m.Machine)
	}
	if !pause.For(ctx, m.run.simulator.Boot) || habit.NeverJoins || !m.launch.joins {
		return
	}
	m.bootID = string(uuid.NewUUID())
	if !m.try(ctx, "joining", func() error { return m.join(ctx, habit) }) {
		return
	}
	var done sync.WaitGroup
	defer done.Wait()
	done.Go(func() { m.renew(ctx, habit) })
	if habit.NeverReady {
		return
	}
	done.Go(func() { m.runPods(ctx) })
	done.Go(func() { m.flap(ctx, habit) })
	if m.run.simulator.CloudController &&
		!m.try(ctx, "removing the taint of a machine that is off", func() error { return m.taint(ctx, false) }) {
		return
	}
	if m.launch.warms && !m.warmed {
		m.warmed = true
		m.warm(ctx, habit)
	}
}

// flap takes the readiness of a machine that runs back for a while, again and again.
func (m *machine) flap(ctx context.Context, habit Habit) {
	silent := habit
	silent.NeverReady = true
	for habit.FlapEvery > 0 && pause.For(ctx, habit.FlapEvery) {
		for _, h := range []Habit{silent, habit} {
			if !m.try(ctx, "changing its readiness", func() error { return m.patchStatus(ctx, m.status(h)) }) ||
				h.NeverReady && !pause.For(ctx, habit.FlapFor) {
				return
			}
		}
	}
}

// warm is what the script of the user data does.
func (m *machine) warm(ctx context.Context, habit Habit) {
	if !pause.For(ctx, m.run.simulator.Warmup) {
		return
	}
	attestation := nodes.Attestation{BootID: m.bootID}
	for _, name := range m.launch.images {
		if !pause.For(ctx, m.run.simulator.Pull) {
			return
		}
		if slices.Contains(habit.BadImages, name) {
			attestation.Failed = append(attestation.Failed, name)
		} else {
			attestation.Images = append(attestation.Images, name)
		}
	}
	if habit.NeverAttests || !m.try(ctx, "attesting", func() error { return m.attest(ctx, attestation) }) {
		return
	}
	if habit.NeverStops || !m.launch.stops {
		return
	}
	m.try(ctx, "stopping itself", func() error { return m.run.stop(ctx, m.ID) })
}

func (m *machine) attest(ctx context.Context, attestation nodes.Attestation) error {
	value, err := json.Marshal(attestation)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationAttested: string(value)}}},
	)
	if err != nil {
		return err
	}
	_, err = m.run.client.CoreV1().Nodes().Patch(ctx, m.node, apitypes.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// off takes readiness back, until the machine is on again. The Node of a machine that is
// off may be gone; it is not made again.
func (m *machine) off(ctx context.Context) {
	for {
		err := m.withdraw(ctx)
		if err == nil && m.run.simulator.CloudController {
			err = m.taint(ctx, true)
		}
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		m.run.log.WarnContext(ctx, "cannot set node not ready", slog.String("node", m.node), slog.Any("err", err))
		if len(m.changes) > 0 || !pause.For(ctx, retryEvery) {
			return
		}
	}
}

// try does what must succeed, again and again. It returns false if ctx has ended before.
func (m *machine) try(ctx context.Context, what string, do func() error) bool {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		m.run.log.WarnContext(ctx, "a machine could not act", slog.String("what", what), slog.String("node", m.node), slog.Any("err", err))
		if !pause.For(ctx, retryEvery) {
			return false
		}
	}
}

// renew keeps the lease of the Node, by which it is taken to be alive, and says again that it is
// ready where the cluster had not heard of it for a while, such as while its API server was away.
func (m *machine) renew(ctx context.Context, habit Habit) {
	for m.try(ctx, "renewing its lease", func() error { return errors.Join(m.renewLease(ctx), m.reportAgain(ctx, habit)) }) {
		if !pause.For(ctx, leaseEvery) {
			return
		}
	}
}

// reportAgain writes the status of the Node if the cluster has taken it back.
func (m *machine) reportAgain(ctx context.Context, habit Habit) error {
	n, err := m.run.client.CoreV1().Nodes().Get(ctx, m.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return m.patchStatus(ctx, m.status(habit))
		}
	}
	return nil
}

func now() metav1.Time { return metav1.NewTime(time.Now()) }
