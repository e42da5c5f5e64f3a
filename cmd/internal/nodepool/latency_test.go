package nodepool_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// TestLatency is D3: 50 pods come that nothing has room for, two to a machine. They run on
// as many machines as they need, and the histogram has the time of each of them. How long
// it took, without the boot of the simulated machines, is printed, and not judged here.
func TestLatency(t *testing.T) {
	t.Parallel()
	const pods, machines, powerOn, boot = 50, 25, 200 * time.Millisecond, 300 * time.Millisecond
	c := newCell(t)
	r := c.start(t, nil)
	b := c.bench(t, "d3")
	b.class()
	b.pool(fmt.Sprintf("poolSize: %d, minStandby: %d", machines, machines))
	b.standby(machines)
	before := r.wire.count("StartInstances")

	times := b.watchPods()
	b.pods(names("pod", pods), "cpu: 1500m", "")
	b.eventually("all run", func() bool { return b.bound() == pods })
	var took []time.Duration
	b.eventually("all were seen", func() bool {
		took = times()
		return len(took) == pods
	})
	require.Equal(b, [3]int32{0, machines, machines}, func() [3]int32 {
		b.eventually("all machines run", func() bool { return b.counts()[1] == machines })
		return b.counts()
	}())
	require.Equal(b, machines, started(r), "each is started once")
	require.LessOrEqual(b, r.wire.count("StartInstances")-before, machines)
	histogram := func(part string) int {
		return c.metric(t, r, fmt.Sprintf("stratos_nodepool_scaleup_duration_seconds_%s{pool=%q}", part, b.name))
	}
	b.eventually("each pod is in the histogram", func() bool { return histogram("count") >= pods })
	require.Equal(b, pods, histogram("count"))
	for _, stage := range []string{"decision", "api", "boot", "register", "ready", "bind"} {
		require.Positive(b, c.metric(t, r, fmt.Sprintf("stratos_nodepool_scaleup_stage_duration_seconds_count{pool=%q,stage=%q}", b.name, stage)))
	}
	slices.Sort(took)
	p95 := took[len(took)*95/100]
	fmt.Printf("figure nodepool_pending_to_bound_p95_minus_boot_s %.2f s\n", max(p95-powerOn-boot, 0).Seconds())
	fmt.Printf("figure nodepool_pending_to_bound_mean_s %.2f s (the operator says %.2f s)\n", mean(took).Seconds(), float64(histogram("sum"))/pods)
}

// started is how many machines were asked to start.
func started(r *running) int {
	r.wire.mu.Lock()
	defer r.wire.mu.Unlock()
	n := 0
	for _, form := range r.wire.seen {
		if form.Get("Action") != "StartInstances" {
			continue
		}
		for i := 1; form.Get(fmt.Sprintf("InstanceId.%d", i)) != ""; i++ {
			n++
		}
	}
	return n
}

func mean(all []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(len(all))
}

// watchPods follows the pods of the scenario. The function that it returns has the times
// from unschedulable to bound so far.
func (b *bench) watchPods() func() []time.Duration {
	b.Helper()
	var mu sync.Mutex
	waits, took := map[string]time.Time{}, map[string]time.Duration{}
	w, err := b.kube.CoreV1().Pods(b.name).Watch(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	run(b.T, func(ctx context.Context) error {
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case e, open := <-w.ResultChan():
				p, ok := e.Object.(*corev1.Pod)
				if !open || !ok {
					return nil
				}
				mu.Lock()
				since, waiting := waits[p.Name]
				switch {
				case !waiting && cloudkube.Unschedulable(p):
					waits[p.Name] = time.Now()
				case waiting && p.Spec.NodeName != "" && took[p.Name] == 0:
					took[p.Name] = time.Since(since)
				}
				mu.Unlock()
			}
		}
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		all := make([]time.Duration, 0, len(took))
		for _, d := range took {
			all = append(all, d)
		}
		return all
	}
}
