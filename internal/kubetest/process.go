package kubetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// processes are the children of one cluster. A single goroutine that is locked
// to its thread starts them all, because the parent-death signal is sent when
// the starting thread ends, not the process.
type processes struct {
	dir   string
	start chan func()
	done  sync.WaitGroup

	mu   sync.Mutex
	live []*process
}

type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error // valid once exited is closed
}

func newProcesses(dir string) *processes {
	p := &processes{dir: dir, start: make(chan func())}
	p.done.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range p.start {
			f()
		}
	})
	return p
}

// run starts a program whose output goes to <dir>/<name>.log.
func (p *processes) run(name, path string, args ...string) (*process, error) {
	child := &process{name: name, log: filepath.Join(p.dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(child.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()                       //nolint:errcheck // the child has its own descriptor
	child.cmd = exec.Command(path, args...) //nolint:noctx // ended by stop, in the cluster's order
	child.cmd.Dir = p.dir
	child.cmd.Stdout, child.cmd.Stderr = log, log
	child.cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	p.start <- func() { started <- child.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.mu.Lock()
	p.live = append(p.live, child)
	p.mu.Unlock()
	p.done.Go(func() {
		child.err = child.cmd.Wait()
		close(child.exited)
	})
	return child, nil
}

// stop kills the children, last started first, and waits for them. Test
// clusters keep nothing, so there is nothing a graceful end would save.
func (p *processes) stop() {
	p.mu.Lock()
	live := p.live
	p.live = nil
	p.mu.Unlock()
	for i := len(live) - 1; i >= 0; i-- {
		live[i].cmd.Process.Kill() //nolint:errcheck // it may have exited by itself
		<-live[i].exited
	}
}

// close ends the starting goroutine after stop.
func (p *processes) close() {
	p.stop()
	close(p.start)
	p.done.Wait()
}

// tail returns the end of the child's log.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-12):], []byte("\n")))
}
