package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// profiled is a program that is built with -tags profile.
type profiled struct {
	name    string
	started *started
	pprof   string // address
}

// profile has each program start beside many objects until it comes to rest, one after the other;
// then all start again, rest, and are looked at for a while.
func (c *cost) profile(ctx context.Context) (string, error) {
	if c.profiles == "" {
		return "left out", nil
	}
	var err error
	if c.profiles, err = filepath.Abs(c.profiles); err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(c.profiles), os.MkdirAll(c.profiles, 0o750)); err != nil {
		return "", err
	}
	all := slices.DeleteFunc(slices.Clone(c.all), func(p *costed) bool { return p.name == peerName })
	plane := &c.clusters.plane
	var running []*profiled
	for _, p := range all {
		if p.name == "controlplane" { // it goes on as the one of the agents
			if err := plane.process.Stop(time.Minute); err != nil {
				return "", err
			}
			p.args = append(p.args, "--database", plane.database)
		} else if err := c.fill(ctx, p); err != nil {
			return "", err
		}
		c.demo.display.progress("%s at its busiest", p.name)
		s, err := c.look(ctx, p, "TRUEUP_CPU_PROFILE="+c.file(p.name, "busiest.cpu"))
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		running = append(running, s)
		if p.name == "controlplane" {
			plane.base = "http://" + s.started.address
			continue
		}
		if err := c.settled(ctx, s.started.process, p.name); err != nil {
			return "", err
		}
	}
	for _, s := range slices.Backward(running) {
		if err := errors.Join(c.fetch(ctx, s, "heap?gc=1", "busiest.heap"), s.started.process.Stop(time.Minute)); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", s.name, err, s.started.process.Tail())
		}
	}
	if err := c.profileCommand(ctx); err != nil {
		return "", err
	}
	if err := c.rests(ctx, all); err != nil {
		return "", err
	}
	return "in " + c.profiles, c.draw(ctx)
}

// fill makes the objects of the busiest time.
func (c *cost) fill(ctx context.Context, p *costed) error {
	if p.fill == nil {
		return nil
	}
	c.demo.display.progress("objects of %s", p.name)
	if err := p.fill(ctx); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// rests profiles all programs at rest beside one another: a program at rest takes nothing from others.
func (c *cost) rests(ctx context.Context, all []*costed) error {
	var running []*profiled
	for _, p := range all {
		s, err := c.look(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		running = append(running, s)
		if p.name == "controlplane" {
			c.clusters.plane.base = "http://" + s.started.address
		}
	}
	for _, s := range running {
		if err := c.settled(ctx, s.started.process, s.name); err != nil {
			return err
		}
	}
	c.demo.display.progress("rest for %s", c.load.rest)
	errs := make([]error, len(running))
	var looks sync.WaitGroup
	for i, s := range running {
		looks.Go(func() {
			before, _, err := usage(s.started.process.PID())
			seconds := fmt.Sprintf("profile?seconds=%.0f", c.load.rest.Seconds())
			err = errors.Join(err, c.fetch(ctx, s, seconds, "rest.cpu"))
			after, resident, failed := usage(s.started.process.PID())
			c.book.Add("program_"+s.name+"_rest_cpu_ms", after-before, "ms")
			c.book.Add("program_"+s.name+"_rest_rss_mib", resident, "MiB")
			errs[i] = errors.Join(err, failed, c.fetch(ctx, s, "heap?gc=1", "rest.heap"), s.started.process.Stop(time.Minute))
		})
	}
	looks.Wait()
	return errors.Join(errs...)
}

func (c *cost) file(name, what string) string {
	return filepath.Join(c.profiles, name+"."+what+".pprof")
}

// look starts the build of a program that can be looked into.
func (c *cost) look(ctx context.Context, p *costed, env ...string) (*profiled, error) {
	port, err := process.Port(ctx)
	if err != nil {
		return nil, err
	}
	of, at := *p, fmt.Sprint("127.0.0.1:", port)
	of.path = filepath.Join(c.demo.dir, "profile", p.name)
	s, err := c.start(ctx, &of, append(env, "TRUEUP_PPROF="+at)...)
	return &profiled{p.name, s, at}, err
}

// settled waits until a program has taken nearly no CPU for some seconds, and adds how much it has
// taken and what it holds.
func (c *cost) settled(ctx context.Context, p *process.Process, name string) error {
	const window, nothing = 4 * time.Second, 60.0 // milliseconds of CPU
	before := 0.0
	for {
		if err := wait(ctx, window); err != nil {
			return fmt.Errorf("%s does not come to rest: %w", name, err)
		}
		cpu, resident, err := usage(p.PID())
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, p.Tail())
		}
		c.demo.display.progress("%s has taken %.1f s of CPU", name, cpu/1e3)
		if cpu-before < nothing {
			if _, ok := c.book.Get("program_" + name + "_busiest_cpu_ms"); !ok {
				c.book.Add("program_"+name+"_busiest_cpu_ms", cpu, "ms")
				c.book.Add("program_"+name+"_busiest_rss_mib", resident, "MiB")
			}
			return nil
		}
		before = cpu
	}
}

func (c *cost) fetch(ctx context.Context, s *profiled, path, what string) error {
	data, err := ask(ctx, http.MethodGet, "http://"+s.pprof+"/debug/pprof/"+path, "", "", "")
	if err != nil {
		return err
	}
	return os.WriteFile(c.file(s.name, what), data, 0o600)
}

// profileCommand profiles the program trueup with a folder: when it applies all of it, and when
// nothing differs.
func (c *cost) profileCommand(ctx context.Context) error {
	if !c.chosen("trueup") {
		return nil
	}
	folder := filepath.Join(c.demo.dir, "folder")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	var all strings.Builder
	for n := range c.load.objects {
		fmt.Fprintf(&all, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c-%d, namespace: default}, data: {key: value}}\n---\n", n)
	}
	if err := os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(all.String()), 0o600); err != nil {
		return err
	}
	path := filepath.Join(c.demo.dir, "profile", "trueup")
	for _, verb := range []struct{ verb, what string }{{"apply", "busiest"}, {"diff", "rest"}} {
		command := []string{"TRUEUP_CPU_PROFILE=" + c.file("trueup", verb.what+".cpu"), path, verb.verb, "-f", folder}
		_, cpu, err := c.run(ctx, "/usr/bin/env", command...)
		if err != nil {
			return err
		}
		c.book.Add("program_trueup_"+verb.what+"_cpu_ms", cpu, "ms")
	}
	return nil
}

// draw writes a flame graph for each profile: the page of pprof's own server, as one file that loads nothing.
func (c *cost) draw(ctx context.Context) error {
	all, err := filepath.Glob(filepath.Join(c.profiles, "*.pprof"))
	for _, file := range all {
		c.demo.display.progress("flame graph of %s", filepath.Base(file))
		err = errors.Join(err, c.flameGraph(ctx, file))
	}
	return err
}

func (c *cost) flameGraph(ctx context.Context, file string) error {
	port, err := process.Port(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	address := fmt.Sprint("127.0.0.1:", port)
	server := exec.CommandContext(ctx, "go", "tool", "pprof", "-no_browser", "-http="+address, file)
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) } // the go command passes it on
	server.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		return err
	}
	var page []byte
	err = until(ctx, func() (bool, error) {
		var err error
		page, err = ask(ctx, http.MethodGet, "http://"+address+"/ui/flamegraph", "", "", "")
		return err == nil, nil
	})
	stop()
	_ = server.Wait() // it was interrupted
	if err != nil {
		return fmt.Errorf("%w: %s", err, log.String())
	}
	return os.WriteFile(strings.TrimSuffix(file, ".pprof")+".html", page, 0o600)
}
