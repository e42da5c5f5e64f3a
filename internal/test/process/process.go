// Package process runs child processes that do not outlive their parent: not
// when it stops them, nor, on Linux, when it is killed. Tests and the demo run
// real programs with it.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Group starts children that end together. Make it with NewGroup. It is safe
// for concurrent use.
type Group struct {
	dir   string
	start chan func()
	done  sync.WaitGroup

	mu     sync.Mutex
	live   []*Process
	closed bool
}

// errClosed means that the group starts no more processes.
var errClosed = errors.New("the group is closed")

// NewGroup returns a group whose children run in the folder dir and log there.
// The caller must Close it.
func NewGroup(dir string) *Group {
	g := &Group{dir: dir, start: make(chan func())}
	// A single goroutine, locked to its thread, starts all children: the
	// parent-death signal is sent when the starting thread ends, not the
	// process.
	g.done.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range g.start {
			f()
		}
	})
	return g
}

// Process is a child.
type Process struct {
	// Name is what it was started as.
	Name string
	// Log is the file that receives its output.
	Log string

	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
}

// Run starts the program at path, with its output appended to <dir>/<name>.log
// and env added to this process's environment, but for GOGC: the tests may collect their own
// garbage more seldom than what they start does. After Close it is an error.
func (g *Group) Run(name, path string, env []string, args ...string) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(g.dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()                   //nolint:errcheck // the child has its own descriptor
	p.cmd = exec.Command(path, args...) //nolint:noctx // ended by Stop, in the group's order
	p.cmd.Dir = g.dir
	p.cmd.Env = slices.Concat(os.Environ(), []string{"GOGC=100"}, env)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()

	if err := g.run(p); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func (g *Group) run(p *Process) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed
	}
	started := make(chan error)
	g.start <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	g.live = append(g.live, p)
	g.done.Go(func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	})
	return nil
}

// Close kills the children, last started first, and waits for them. Calling it
// again does nothing.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	for _, p := range slices.Backward(g.live) {
		p.Kill()
	}
	close(g.start)
	g.done.Wait()
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Err returns how the process ended, nil for status 0. Valid once Exited is
// closed.
func (p *Process) Err() error { return p.err }

// Kill ends the process at once and waits for it.
func (p *Process) Kill() {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
	<-p.exited
}

// Stop asks the process to end (SIGTERM), waits at most for timeout, and returns how
// it ended, as Err does. A process that does not end in time is killed, which is
// an error.
func (p *Process) Stop(timeout time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended by itself
	select {
	case <-p.exited:
		return p.err
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.Name, timeout)
	}
}

// Tail returns the last lines of the log.
func (p *Process) Tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-12):], []byte("\n")))
}
