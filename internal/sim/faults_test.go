package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// fault makes calls of the cloud and of the cluster fail.
func (s *Pool) fault(call cloudtest.Call) cloudtest.Fault {
	if s.dead {
		return cloudtest.Fault{Err: errKilled}
	}
	if s.calm {
		return cloudtest.Fault{}
	}
	dice := s.random.Float64()
	switch {
	case dice < s.crash:
		s.dead = true
		return cloudtest.Fault{Err: errKilled, Lost: s.random.IntN(2) == 0}
	case dice < s.crash+s.faults:
		switch s.random.IntN(5) {
		case 0:
			return cloudtest.Fault{Err: &cloud.RateLimitError{RetryAfter: time.Duration(1+s.random.IntN(20)) * time.Second}}
		case 1:
			return cloudtest.Fault{Err: errors.New("503 service unavailable"), Lost: true}
		case 2:
			return cloudtest.Fault{Twice: true}
		default:
			return cloudtest.Fault{Err: errors.New("connection reset by peer")}
		}
	}
	return cloudtest.Fault{}
}

// habit decides once how a machine behaves.
func (s *Pool) habit(id string) cloudtest.Habit {
	h, ok := s.habits[id]
	if !ok {
		if !s.calm {
			switch s.random.IntN(25) {
			case 0:
				h.NeverJoins = true
			case 1:
				h.NeverStops = true
			case 2:
				h.NeverAttests = true
			case 3:
				h.NeverReady = true
			}
		}
		s.habits[id] = h
	}
	return h
}

// disturb is what happens beside the pool.
func (s *Pool) disturb() {
	switch s.random.IntN(40) {
	case 0, 1, 2, 3:
		for range 1 + s.random.IntN(8) {
			s.Cluster.AddPod(s.pod(), time.Duration(1+s.random.IntN(40))*time.Minute, s.random.IntN(10) == 0)
		}
	case 4:
		// A machine that vanishes without a trace brakes the pool for an hour, which is longer
		// than the quiet at the end: see the story of a short list.
		if i, ok := s.any(cloud.InstanceRunning, cloud.InstanceStopped); ok && !s.Fake.Forgets {
			s.log("interrupt %s", i)
			s.Cluster.Lose(i)
			_ = s.Fake.Interrupt(i)
		}
	case 5:
		if i, ok := s.any(cloud.InstanceRunning); ok {
			s.log("stopped by another hand: %s", i)
			s.habits[i] = cloudtest.Habit{NeverAttests: true} // it may have been in its warm-up
			s.Cluster.Lose(i)
			_ = s.Fake.Shutdown(i)
		}
	case 6:
		zone := "zone-" + string(rune('a'+s.random.IntN(3)))
		s.Fake.Capacity = map[cloud.Placement]int{{InstanceType: "m5.large", Zone: zone}: s.random.IntN(3)}
		s.log("capacity of %s: %v", zone, s.Fake.Capacity)
	case 7:
		s.Fake.Capacity = nil
	case 8:
		if s.random.IntN(4) == 0 {
			size := 1 + s.random.IntN(10)
			s.log("size %d", size)
			s.shrunk = s.shrunk || size < s.Spec.Size
			s.Spec.Size, s.Spec.MinStandby = size, min(s.Spec.MinStandby, size)
			s.largest = max(s.largest, size)
		}
	case 9:
		if !slices.ContainsFunc(s.used(), func(id string) bool { return !s.Cluster.HasNode(id) }) {
			s.Provider.lie(s.random)
		}
	case 10:
		if used := s.used(); len(used) > 0 {
			s.flap(time.Duration(1+s.random.IntN(300))*time.Second, used[s.random.IntN(len(used))])
		}
	case 11:
		s.flap(time.Duration(1+s.random.IntN(300))*time.Second, s.used()...)
	case 12:
		// Of a machine without a Node the list is all that is known.
		if used := s.used(); len(used) > 0 && time.Now().After(s.Provider.short) && s.random.IntN(3) == 0 {
			id := used[s.random.IntN(len(used))]
			s.log("its Node is deleted: %s", id)
			s.Cluster.DeleteNode(id)
		}
	case 13, 14:
		s.Cluster.AddPod(s.tolerant(), time.Duration(1+s.random.IntN(40))*time.Minute, s.random.IntN(10) == 0)
	}
}

// flap takes the readiness of Nodes away for a while, and leaves alone those that
// have hardly come back from the last time.
func (s *Pool) flap(d time.Duration, ids ...string) {
	for _, id := range ids {
		if time.Now().After(s.flapped[id].Add(2 * time.Minute)) {
			s.log("not ready for %s: %s", d, id)
			s.flapped[id] = time.Now().Add(d)
			s.Cluster.LoseReadiness(id, d)
		}
	}
}

// pod is one that takes from an eighth to almost all of a machine.
func (s *Pool) pod() demand.Pod {
	s.podsAt++
	return demand.Pod{
		Name:     fmt.Sprintf("pod-%04d", s.podsAt),
		Requests: demand.Resources{CPU: int64(500 + 100*s.random.IntN(30)), Memory: 1 << 30},
	}
}

// tolerant is a pod that tolerates every taint, as a tenant may write it to get a machine in
// any case: the scheduler binds it to Nodes of machines that are off.
func (s *Pool) tolerant() demand.Pod {
	p := s.pod()
	p.Tolerations = []demand.Toleration{{Exists: true}}
	s.log("%s tolerates every taint", p.Name)
	return p
}

// used returns the machines that run for pods. One that loses readiness while it
// warms up may be late, and go for that.
func (s *Pool) used() (ids []string) {
	for _, i := range s.Fake.Instances() {
		if i.State == cloud.InstanceRunning && i.Tags["stratos.sh/state"] == string(cloud.StateRunning) {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// any picks a machine in one of the states.
func (s *Pool) any(states ...cloud.InstanceState) (string, bool) {
	var ids []string
	for _, i := range s.Fake.Instances() {
		if slices.Contains(states, i.State) {
			ids = append(ids, i.ID)
		}
	}
	if len(ids) == 0 {
		return "", false
	}
	return ids[s.random.IntN(len(ids))], true
}

// Provider is the cloud as the pool reaches it: lists may be short, and what
// terminates a good machine is noticed.
type Provider struct {
	*cloudtest.Fake
	s *Pool
	// short is until when lists are cut to keep machines.
	short time.Time
	keep  int
}

func (w *Provider) lie(random *rand.Rand) {
	w.short = time.Now().Add(time.Duration(10+random.IntN(600)) * time.Second)
	w.keep = random.IntN(3)
	w.s.log("lists are cut to %d until %s", w.keep, w.short.Format(time.TimeOnly))
}

// ListInstances implements [cloud.Inventory].
func (w *Provider) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	out, err := w.Fake.ListInstances(ctx, tags)
	if !w.s.calm && time.Now().Before(w.short) {
		out = out[:min(len(out), w.keep)]
	}
	return out, err
}
