package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// cost measures what each program costs its user: its size, the time and the CPU from its exec until
// /readyz answers 200, and its memory then; with --profiles where its CPU and its memory go.
type cost struct {
	demo     *demo
	clusters *clusters
	apps     *applications

	book     benchfigures.Book
	starts   int
	only     []string
	peer     string
	helm     string
	profiles string
	load     load
	all      []*costed
}

// names are the programs.
var names = []string{ //nolint:gochecknoglobals // constant
	"agentjob", "application", "controlplane", "krane", "nodepool", "shuttle", "trueup",
}

// peerName names the operator on controller-runtime among the programs.
const peerName = "peer"

// costed is a program that serves.
type costed struct {
	name      string
	path      string
	env, args []string
	// at returns what has it answer /readyz at an address.
	at func(address string) (env, args []string)
	// fill makes the objects of its busiest time, beyond those it starts beside. Nil: nothing.
	fill func(context.Context) error
}

func costCommand() *cobra.Command {
	d := newDemo()
	c := &cost{demo: d, clusters: newClusters(d), apps: &applications{demo: d}, book: benchfigures.Book{Out: os.Stdout}}
	command := d.command(story{
		use:        "cost",
		short:      "Measure the size, the start and the memory of each program, and with --profiles where its CPU goes",
		kubernetes: kubetest.Options{Controllers: true, Scheduler: true, Nodes: 10, GatewayAPI: true},
		limit:      40 * time.Minute,
		stages: []stage{
			{"Released", c.build},
			{"World", c.world},
			{"Starts", c.measure},
			{"The command", c.command},
			{"Profiles", c.profile},
			{"Marks", c.marks},
		},
	})
	f := command.Flags()
	f.IntVar(&c.starts, "starts", 5, "starts of each program, of which the median counts")
	f.StringSliceVar(&c.only, "only", nil, "programs to measure; default: all")
	f.StringVar(&c.peer, "peer", "",
		"the program of internal/bench/agentjob, whose operator on controller-runtime is measured beside ours; empty: none")
	f.StringVar(&c.helm, "helm", "", "the program helm, measured beside the command; empty: none")
	f.StringVar(&c.profiles, "profiles", "", "folder for profiles and flame graphs of each program at its busiest and at rest; empty: none")
	f.IntVar(&c.load.services, "services", 300, "services of the cluster agent and deployments of the agent of a region at their busiest")
	f.IntVar(&c.load.jobs, "jobs", 300, "AgentJobs of the agent-run operator at its busiest")
	f.IntVar(&c.load.apps, "apps", 30, "applications at their operator's busiest")
	f.IntVar(&c.load.pods, "pods", 500, "pods that wait for machines at the node-pool operator's busiest")
	f.IntVar(&c.load.objects, "objects", 1000, "objects of the folder at the command's busiest")
	f.DurationVar(&c.load.rest, "rest", time.Minute, "how long each program is profiled at rest")
	return command
}

func (c *cost) chosen(name string) bool { return len(c.only) == 0 || slices.Contains(c.only, name) }

// build builds the programs as a release does, into a folder that d.install knows.
func (c *cost) build(ctx context.Context) (string, error) {
	if err := programs.Release(ctx, c.demo.dir, nil, names...); err != nil {
		return "", err
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(c.demo.dir, name))
		if err != nil {
			return "", err
		}
		c.book.Add("program_"+name+"_mb", float64(info.Size())/1e6, "MB")
	}
	if c.profiles == "" {
		return "as a release", nil
	}
	folder := filepath.Join(c.demo.dir, "profile")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	return "as a release, and with -tags profile", programs.Release(ctx, folder, []string{"profile"}, names...)
}

// measure takes the starts of the programs in turns, so that a busy moment of the machine meets all.
func (c *cost) measure(ctx context.Context) (string, error) {
	samples := map[string][]float64{}
	for n := range c.starts {
		for _, p := range c.all {
			c.demo.display.progress("start %d of %s", n+1, p.name)
			s, err := c.start(ctx, p)
			if err != nil {
				return "", fmt.Errorf("%s: %w", p.name, err)
			}
			for unit, value := range map[string]float64{"ms": float64(s.took.Microseconds()) / 1e3, "cpu_ms": s.cpu, "rss_mib": s.resident} {
				samples[p.name+" "+unit] = append(samples[p.name+" "+unit], value)
			}
			if p.name == peerName {
				s.process.Kill() // it has no end of its own
				c.demo.running = slices.DeleteFunc(c.demo.running, func(p *process.Process) bool { return p == s.process })
			} else if err := s.process.Stop(30 * time.Second); err != nil {
				return "", fmt.Errorf("%s: %w\n%s", p.name, err, s.process.Tail())
			}
		}
	}
	for _, p := range c.all {
		median := func(unit string) float64 { return benchfigures.Percentile(samples[p.name+" "+unit], 0.5) }
		c.book.Add("program_"+p.name+"_ready_ms", median("ms"), "ms")
		c.book.Add("program_"+p.name+"_ready_cpu_ms", median("cpu_ms"), "ms")
		c.book.Add("program_"+p.name+"_ready_rss_mib", median("rss_mib"), "MiB")
	}
	return fmt.Sprintf("%d programs, the median of %d", len(c.all), c.starts), nil
}

// marks are what the figures should reach.
func (c *cost) marks(context.Context) (string, error) {
	var marks []benchfigures.Mark
	for _, name := range names {
		marks = append(marks, benchfigures.Mark{What: "size of " + name, Figure: "program_" + name + "_mb", Limit: 60, Hard: true})
	}
	for _, p := range c.all {
		if p.name != peerName {
			marks = append(marks, benchfigures.Mark{
				What: "start of " + p.name, Figure: "program_" + p.name + "_ready_ms", Limit: 1000, Peers: []string{"program_peer_ready_ms"},
			})
		}
	}
	table, err := c.book.Table(marks)
	c.demo.display.print("", table)
	if err != nil {
		return "", err
	}
	return "reached but for those that the table names", nil
}

// started is a program that is ready.
type started struct {
	process  *process.Process
	address  string
	took     time.Duration
	cpu      float64 // milliseconds
	resident float64 // MiB
}

// start runs a program until /readyz answers 200, with what env adds.
func (c *cost) start(ctx context.Context, p *costed, env ...string) (*started, error) {
	port, err := process.Port(ctx)
	if err != nil {
		return nil, err
	}
	s := &started{address: fmt.Sprint("127.0.0.1:", port)}
	more, args := p.at(s.address)
	began := time.Now()
	if s.process, err = c.demo.processes.Run(p.name, p.path, slices.Concat(p.env, more, env), slices.Concat(p.args, args)...); err != nil {
		return nil, err
	}
	c.demo.running = append(c.demo.running, s.process)
	if err := ready(ctx, s); err != nil {
		return nil, err
	}
	s.took = time.Since(began)
	s.cpu, s.resident, err = usage(s.process.PID())
	return s, err
}

func ready(ctx context.Context, s *started) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not ready within a minute"))
	defer cancel()
	for {
		if _, err := ask(ctx, http.MethodGet, "http://"+s.address+"/readyz", "", "", ""); err == nil {
			return nil
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("ended: %w\n%s", s.process.Err(), s.process.Tail())
		default:
		}
		if err := wait(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("%w\n%s", err, s.process.Tail())
		}
	}
}

// usage returns the CPU milliseconds and the resident MiB of a process, where that is Linux.
func usage(pid int) (cpu, resident float64, err error) {
	used, err := benchfigures.ProcessorTime(pid)
	if err != nil {
		return 0, 0, err
	}
	memory, err := benchfigures.MemoryOf(pid)
	return 1000 * used["self"], memory.Resident / (1 << 20), err
}

// command measures the program trueup, and others that do the same.
func (c *cost) command(ctx context.Context) (string, error) {
	if !c.chosen("trueup") {
		return "left out", nil
	}
	folder := filepath.Join(c.demo.dir, "one")
	const one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: default}\ndata: {key: value}\n"
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "one.yaml"), []byte(one), 0o600); err != nil {
		return "", err
	}
	trueup, kubectl := filepath.Join(c.demo.dir, "trueup"), c.demo.cluster.KubectlPath()
	if _, _, err := c.run(ctx, trueup, "apply", "-f", folder); err != nil {
		return "", err
	}
	tools := []struct {
		name, path string
		args       []string
	}{
		{"trueup_help", trueup, []string{"--help"}},
		{"trueup_diff", trueup, []string{"diff", "-f", folder}},
		{"kubectl_help", kubectl, []string{"--help"}},
		{"kubectl_diff", kubectl, []string{"diff", "--server-side", "-f", folder}},
		{"helm_help", c.helm, []string{"--help"}},
		{"helm_list", c.helm, []string{"list"}},
	}
	for _, tool := range tools {
		if tool.path == "" {
			continue
		}
		var took, spent []float64
		for range c.starts {
			wall, cpu, err := c.run(ctx, tool.path, tool.args...)
			if err != nil {
				return "", err
			}
			took, spent = append(took, wall), append(spent, cpu)
		}
		c.book.Add("program_"+tool.name+"_ms", benchfigures.Percentile(took, 0.5), "ms")
		c.book.Add("program_"+tool.name+"_cpu_ms", benchfigures.Percentile(spent, 0.5), "ms")
	}
	return "beside kubectl, and helm if given", nil
}

// run executes a command until it ends. It returns its wall time and its CPU time, both in milliseconds.
func (c *cost) run(ctx context.Context, path string, args ...string) (took, cpu float64, err error) {
	command := exec.CommandContext(ctx, path, args...)
	// The demo's own folder: no cache of discovery from another cluster.
	command.Env = append(os.Environ(), "KUBECONFIG="+c.demo.cluster.Kubeconfig, "HOME="+c.demo.dir, "GOGC=100")
	command.Dir = c.demo.dir
	began := time.Now()
	out, err := command.CombinedOutput()
	took = float64(time.Since(began).Microseconds()) / 1e3
	if err != nil {
		return 0, 0, fmt.Errorf("%s %v: %w: %s", filepath.Base(path), args, err, out)
	}
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	return took, float64(used.Microseconds()) / 1e3, nil
}
