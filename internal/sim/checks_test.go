package sim_test

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// check is what must hold at any time.
func (s *Pool) check() {
	alive := 0
	for _, i := range s.Fake.Instances() {
		if !i.State.Ending() {
			alive++
		}
	}
	if alive > s.largest {
		s.blame("%d machines exist, the size is %d", alive, s.largest)
	}
	s.Wrong = append(s.Wrong, s.Cluster.Wrong()...)
}

// converged is what must hold once the faults have stopped.
func (s *Pool) converged() {
	alive, standby := 0, 0
	for _, i := range s.Fake.Instances() {
		if i.State.Ending() {
			continue
		}
		alive++
		if i.State == cloud.InstanceRunning && !s.Cluster.HasNode(i.ID) {
			s.blame("machine %s runs without a Node", i.ID)
		}
		state := i.Tags["stratos.sh/state"]
		switch {
		case state == "standby" && i.State == cloud.InstanceStopped:
			if s.Cluster.Attested(i.ID) {
				standby++
			}
		case state == "running" && i.State == cloud.InstanceRunning:
		default:
			s.blame("machine %s is %s, its tag says %q", i.ID, i.State, state)
		}
	}
	if room := s.Spec.Size - alive; standby < s.Spec.MinStandby && room > 0 {
		s.blame("%d attested machines on standby, wanted %d, and there is room for %d", standby, s.Spec.MinStandby, room)
	}
	if pending := len(s.Cluster.Pending()); pending > 0 && alive < s.Spec.Size {
		s.blame("%d pods are pending, and there is room for %d machines", pending, s.Spec.Size-alive)
	}
	if pending := len(s.Cluster.Pending()); pending > 0 && standby > 0 {
		s.blame("%d pods are pending, and %d machines are on standby", pending, standby)
	}
	if stranded := s.Cluster.Stranded(); len(stranded) > 0 {
		s.blame("%d pods are bound to machines that are off, such as %s", len(stranded), stranded[0].Name)
	}
	if alive > s.Spec.Size && standby > 0 {
		s.blame("%d machines, %d of them on standby, the size is %d", alive, standby, s.Spec.Size)
	}
}

// silent is what must hold for a converged pool: no write of any kind.
func (s *Pool) silent(ctx context.Context) {
	if s.Spec.SurplusTTL > 0 || len(s.Cluster.Pending()) > 0 {
		return // something is still to come: pods that end, and what follows from it
	}
	writes, calls := s.Cluster.Writes(), s.Fake.Calls()
	for range 40 {
		s.Cluster.Step()
		s.log("rest")
		_ = s.Pass(ctx)
		pause.For(ctx, time.Second)
	}
	if n := s.Cluster.Writes() - writes; n > 0 {
		s.blame("%d writes at rest", n)
	}
	for operation, n := range s.Fake.Calls() {
		if operation != "ListInstances" && n > calls[operation] {
			s.blame("%d calls of %s at rest", n-calls[operation], operation)
		}
	}
}

// TerminateInstances implements [cloud.BatchMachines].
func (w *Provider) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	for _, id := range ids {
		w.s.killing(id)
	}
	return w.Fake.TerminateInstances(ctx, ids)
}

// killing notices a machine that should have been kept.
func (s *Pool) killing(id string) {
	if s.Spec.Deleting || s.shrunk || s.Spec.SurplusTTL > 0 {
		return
	}
	for _, i := range s.Fake.Instances() {
		if i.ID == id && s.habits[id] == (cloudtest.Habit{}) && !i.State.Ending() {
			s.blame("machine %s is terminated while %s, %s", id, i.State, i.Tags["stratos.sh/state"])
		}
	}
}
