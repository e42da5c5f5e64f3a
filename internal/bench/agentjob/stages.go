package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// both calls f for each contender, beginning with the other one in each round.
func (b *bench) both(round int, f func(*contender) error) error {
	all := []*contender{b.ours, b.peer}
	if round%2 == 1 {
		all[0], all[1] = all[1], all[0]
	}
	for _, c := range all {
		if err := f(c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// idle reads the memory of both before there is a job.
func (b *bench) idle(ctx context.Context) error {
	return b.both(0, func(c *contender) error {
		if err := c.silent(ctx); err != nil {
			return err
		}
		resident, err := c.residentMiB()
		b.book.Add(c.name+".agentjob_resident_mib_idle", resident, "MiB")
		return err
	})
}

func (b *bench) create(ctx context.Context) error {
	return b.both(0, func(c *contender) error {
		begun := time.Now()
		err := c.create(ctx, b.jobs, func(i int) (string, map[string]any) {
			role := "role"
			if i < b.wakes {
				role = fmt.Sprint("role-", i)
			}
			return fmt.Sprintf("job-%05d", i), map[string]any{
				"runtimeRef": "runtime", "authRef": "auth", "roleRef": role, "schedule": "0 0 1 1 *",
				"prompt": "Read the issues of the week, and write down what they have in common.", "model": "opus",
			}
		})
		if err != nil {
			return err
		}
		if err := c.await(ctx, "a status for each", func() bool {
			done := 0
			for _, job := range c.jobs {
				if job.ready && job.template != "" {
					done++
				}
			}
			return done == b.jobs
		}); err != nil {
			return err
		}
		b.book.Add(c.name+".agentjob_create_seconds", time.Since(begun).Seconds(), "s")
		if err := c.silent(ctx); err != nil {
			return err
		}
		sent, err := c.requests()
		b.book.Add(c.name+".agentjob_create_requests_per_job", float64(len(sent))/float64(b.jobs), "requests")
		return err
	})
}

func (b *bench) converge(ctx context.Context) error {
	seconds := map[string][]float64{}
	sent := map[string][]kubetest.Request{}
	used := map[string]benchfigures.Processor{b.ours.name: {}, b.peer.name: {}}
	for round := range b.rounds {
		err := b.both(round, func(c *contender) error {
			before, err := c.requests()
			if err != nil {
				return err
			}
			start, err := benchfigures.ProcessorTime(c.process.Process.Pid)
			if err != nil {
				return err
			}
			took, err := c.converge(ctx, b.jobs)
			if err != nil {
				return err
			}
			end, err := benchfigures.ProcessorTime(c.process.Process.Pid)
			if err != nil {
				return err
			}
			for name, seconds := range end.Since(start) {
				used[c.name][name] += seconds
			}
			seconds[c.name] = append(seconds[c.name], took.Seconds())
			if err := c.silent(ctx); err != nil {
				return err
			}
			after, err := c.requests()
			sent[c.name] = append(sent[c.name], after[min(len(before), len(after)):]...)
			return err
		})
		if err != nil {
			return err
		}
	}
	for name, requests := range sent {
		children := 0
		for _, r := range requests {
			if r.Verb != "get" && r.Resource == "cronjobs" {
				children++
			}
		}
		n := float64(b.jobs * b.rounds)
		b.book.Add(name+".agentjob_converge_seconds", benchfigures.Percentile(seconds[name], 0.5), "s")
		b.book.Add(name+".agentjob_converge_requests_per_job", float64(len(requests))/n, "requests")
		for _, program := range []string{"self", "kube-apiserver", "etcd"} {
			b.book.Add(name+".agentjob_converge_processor_ms_per_job_"+program, 1000*used[name][program]/n, "ms")
		}
		b.book.Add(name+".agentjob_writes_per_child", float64(children)/n, "writes")
	}
	return nil
}

func (b *bench) memory(ctx context.Context) error {
	before := map[string]int{}
	if err := b.both(0, func(c *contender) error {
		sent, err := c.requests()
		before[c.name] = len(sent)
		return err
	}); err != nil {
		return err
	}
	pause(ctx, b.rest)
	return b.both(0, func(c *contender) error {
		resident, err := c.residentMiB()
		if err != nil {
			return err
		}
		b.book.Add(c.name+".agentjob_resident_mib", resident, "MiB")
		sent, err := c.requests()
		b.book.Add(c.name+".agentjob_requests_at_rest", float64(len(sent)-before[c.name]), "requests")
		return err
	})
}

// wake changes what one job refers to.
func (b *bench) wake(ctx context.Context) error {
	return b.both(0, func(c *contender) error {
		var took []float64
		for n := range b.wakes {
			name := fmt.Sprintf("job-%05d", n)
			c.mu.Lock()
			before := c.jobs[name].config
			c.mu.Unlock()
			answered, err := c.edit(ctx, agents("agentroles"), fmt.Sprint("role-", n), `{"spec":{"allowedTools":["Write"]}}`)
			if err != nil {
				return err
			}
			if err := c.await(ctx, name, func() bool { return c.jobs[name].config != before }); err != nil {
				return err
			}
			took = append(took, time.Since(answered).Seconds())
		}
		b.book.Add(c.name+".agentjob_wake_seconds_p50", benchfigures.Percentile(took, 0.5), "s")
		b.book.Add(c.name+".agentjob_wake_seconds_p99", benchfigures.Percentile(took, 0.99), "s")
		return nil
	})
}

// completion has jobs run once, all at a time.
func (b *bench) completion(ctx context.Context) error {
	c := b.ours
	once := func(i int) string { return fmt.Sprintf("once-%05d", i) }
	err := c.create(ctx, b.runs, func(i int) (string, map[string]any) {
		return once(i), map[string]any{"runtimeRef": "once", "authRef": "auth", "roleRef": "role", "prompt": "work"}
	})
	if err != nil {
		return err
	}
	if err := c.await(ctx, "all runs to end", func() bool {
		for i := range b.runs {
			if c.jobs[once(i)].phase != "Succeeded" {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	var took []float64
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.runs {
		ended, ok := c.ended[once(i)]
		if !ok {
			return fmt.Errorf("%s ended, and its Job was not seen", once(i))
		}
		took = append(took, max(0, c.jobs[once(i)].since.Sub(ended).Seconds()))
	}
	b.book.Add(c.name+".agentjob_completion_seconds_p99", benchfigures.Percentile(took, 0.99), "s")
	return nil
}

// report adds the figures that marks are set for. The error names what must hold on any
// machine and does not.
func (b *bench) report() error {
	for _, figure := range []string{"writes_per_child", "requests_at_rest", "wake_seconds_p99", "completion_seconds_p99"} {
		if f, ok := b.book.Get("trueup.agentjob_" + figure); ok {
			b.book.Add("agentjob_"+figure, f.Value, f.Unit)
		}
	}
	for _, name := range []string{"trueup", peerName} {
		idle, ok := b.book.Get(name + ".agentjob_resident_mib_idle")
		full, found := b.book.Get(name + ".agentjob_resident_mib")
		if ok && found {
			b.book.Add(name+".agentjob_kib_per_job", (full.Value-idle.Value)*1024/float64(b.jobs), "KiB")
		}
	}
	for name, figure := range map[string]string{
		"agentjob_converge_ratio": "agentjob_converge_seconds", "agentjob_memory_ratio": "agentjob_resident_mib",
		"agentjob_memory_per_job_ratio": "agentjob_kib_per_job",
	} {
		b.book.Ratio(name, peerName+"."+figure, "trueup."+figure)
	}
	table, missed := b.book.Table(marks())
	_, err := fmt.Fprintf(b.book.Out, "\n%s", table)
	return errors.Join(err, missed)
}

// marks are what holds on any machine.
func marks() []benchfigures.Mark {
	return []benchfigures.Mark{
		{
			What: "writes for each CronJob, of a changed image", Figure: "agentjob_writes_per_child", Limit: 1, Exactly: true, Hard: true,
			Peers: []string{peerName + ".agentjob_writes_per_child"},
		},
		{
			What: "requests at rest", Figure: "agentjob_requests_at_rest", Hard: true,
			Peers: []string{peerName + ".agentjob_requests_at_rest"},
		},
	}
}
