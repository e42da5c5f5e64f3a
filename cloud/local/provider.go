//go:build unix && !solaris && !aix

package local

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// A Provider is a [cloud.Provider] whose machines are processes of this machine. The
// ImageID of a launch is the command, with the words and quotes of /bin/sh. Many
// providers, also of other processes, may share a folder.
type Provider struct {
	// Dir is the folder with two files for each machine: its record, and the log of its
	// process, which begins with the process's id. It is made if it is missing. Required.
	Dir string

	// Zone is the zone of all machines. Empty: there are no zones.
	Zone string

	// Grace is how long a process may take to end after SIGTERM. The next call of any
	// provider that looks at the machine kills it then. Default 10s.
	Grace time.Duration
}

// machine is the record of a machine.
type machine struct {
	Instance cloud.Instance     // without its current state, which look finds
	Config   cloud.LaunchConfig // as it was launched
	Want     cloud.InstanceState
	KillAt   time.Time // when its process is killed, unless Want is running
	// Boots counts its starts. Without a pid there is no process, or it has not written its
	// id yet.
	Boots, pid int
}

// LaunchInstance implements [cloud.Machines]. The token names the machine, and is forgotten
// with it.
func (p *Provider) LaunchInstance(ctx context.Context, c cloud.LaunchConfig) (i cloud.Instance, err error) {
	if c.Token == "" || c.ImageID == "" || c.InstanceType == "" {
		return i, fmt.Errorf("a launch needs Token, ImageID and InstanceType: %w", cloud.ErrRejected)
	}
	fresh := cloud.Instance{
		ID: fmt.Sprintf("local-%x", sha256.Sum256([]byte(c.Token)))[:38], LaunchTime: time.Now(), Tags: merged(nil, c.Tags),
		InstanceType: c.InstanceType, SubnetID: c.SubnetID, AvailabilityZone: p.Zone,
	}
	err = p.locked(ctx, func() error { //nolint:contextcheck // as boot
		m, err := p.look(fresh.ID)
		if errors.Is(err, cloud.ErrNotFound) {
			m = &machine{Instance: fresh, Config: c}
			err = p.boot(m)
		}
		if err == nil && fmt.Sprint(m.Config) != fmt.Sprint(c) {
			err = fmt.Errorf("token %s, machine %s: %w", c.Token, fresh.ID, cloud.ErrTokenReused)
		}
		if err == nil {
			i = m.Instance
		}
		return err
	})
	return i, err
}

// TerminateInstance implements [cloud.Machines].
func (p *Provider) TerminateInstance(ctx context.Context, id string) error {
	return p.change(ctx, id, func(m *machine) error { return p.end(m, cloud.InstanceTerminated, false) })
}

// StartInstance implements [cloud.PowerControl].
func (p *Provider) StartInstance(ctx context.Context, id string) error {
	return p.change(ctx, id, func(m *machine) error { //nolint:contextcheck // as boot
		switch m.Instance.State {
		case cloud.InstancePending, cloud.InstanceRunning:
			return nil
		case cloud.InstanceStopped:
			return p.boot(m)
		default:
			return &cloud.InvalidStateError{ID: id, State: m.Instance.State, Operation: "StartInstance"}
		}
	})
}

// StopInstance implements [cloud.PowerControl].
func (p *Provider) StopInstance(ctx context.Context, id string, force bool) error {
	return p.change(ctx, id, func(m *machine) error {
		switch m.Instance.State {
		case cloud.InstanceStopped:
			return nil
		case cloud.InstanceRunning, cloud.InstanceStopping:
			return p.end(m, cloud.InstanceStopped, force)
		default:
			return &cloud.InvalidStateError{ID: id, State: m.Instance.State, Operation: "StopInstance"}
		}
	})
}

// GetInstanceState implements [cloud.Inventory].
func (p *Provider) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	i, err := p.GetInstance(ctx, id)
	return i.State, err
}

// GetInstance implements [cloud.Inventory].
func (p *Provider) GetInstance(ctx context.Context, id string) (i cloud.Instance, err error) {
	err = p.change(ctx, id, func(m *machine) error {
		i = m.Instance
		return nil
	})
	return i, err
}

// ListInstances implements [cloud.Inventory]. A record that cannot be read is an error: a
// list is complete or none.
func (p *Provider) ListInstances(ctx context.Context, tags map[string]string) (all []cloud.Instance, err error) {
	err = p.locked(ctx, func() error {
		files, err := os.ReadDir(p.Dir)
		for _, file := range files {
			m, err := p.look(strings.TrimSuffix(file.Name(), ".json"))
			switch {
			case errors.Is(err, cloud.ErrNotFound): // another file, or its process has ended
			case err != nil:
				return err
			case maps.Equal(merged(m.Instance.Tags, tags), m.Instance.Tags):
				all = append(all, m.Instance)
			}
		}
		return err
	})
	return all, err
}

// UpdateInstanceTags implements [cloud.Inventory].
func (p *Provider) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return p.change(ctx, id, func(m *machine) error {
		before := m.Instance.Tags
		if m.Instance.Tags = merged(before, tags); maps.Equal(before, m.Instance.Tags) {
			return nil
		}
		return p.save(m)
	})
}

func merged(tags, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, tags)
	maps.Copy(all, more)
	return all
}

// path is a file of a machine.
func (p *Provider) path(id, suffix string) string { return filepath.Join(p.Dir, id+suffix) }

// locked calls do while no other provider of the folder does anything.
func (p *Provider) locked(ctx context.Context, do func() error) (err error) {
	if err := errors.Join(ctx.Err(), os.MkdirAll(p.Dir, 0o700)); err != nil {
		return err
	}
	file, err := os.OpenFile(p.path("lock", ""), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flock(file, syscall.LOCK_UN), file.Close()) }()
	for err = flock(file, syscall.LOCK_EX); errors.Is(err, syscall.EWOULDBLOCK); err = flock(file, syscall.LOCK_EX) {
		if !pause.For(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return do()
}

// flock takes the lock of a file or gives it back. Closing the file alone would not: a
// process that is being started has it, too, until it runs its program.
func flock(file *os.File, how int) error { return syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) }

// change looks at a machine and calls do with it, under the lock.
func (p *Provider) change(ctx context.Context, id string, do func(m *machine) error) error {
	return p.locked(ctx, func() error {
		m, err := p.look(id)
		if err == nil {
			err = do(m)
		}
		return err
	})
}

// look reads a machine and finds out its state. It kills a process that was asked to end
// and did not in time, and removes a machine that is terminated.
func (p *Provider) look(id string) (*machine, error) {
	data, err := os.ReadFile(p.path(id, ".json"))
	m := &machine{}
	err = errors.Join(err, json.Unmarshal(data, m))
	if errors.Is(err, os.ErrNotExist) || strings.ContainsRune(id, os.PathSeparator) || err == nil && m.Instance.ID != id { // or a copy
		return nil, fmt.Errorf("machine %s: %w", id, cloud.ErrNotFound)
	}
	held, failed := p.held(id, m)
	switch err = errors.Join(err, failed); {
	case err != nil:
	case held && m.Want == cloud.InstanceRunning && m.pid == 0:
		m.Instance.State = cloud.InstancePending
	case held && m.Want == cloud.InstanceRunning:
		m.Instance.State = cloud.InstanceRunning
	case held && m.Want == cloud.InstanceStopped:
		m.Instance.State, err = cloud.InstanceStopping, m.signal(0)
	case held:
		m.Instance.State, err = cloud.InstanceShuttingDown, m.signal(0)
	case m.Want == cloud.InstanceTerminated:
		err = cmp.Or(errors.Join(os.Remove(p.path(id, ".log")), os.Remove(p.path(id, ".json"))), cloud.ErrNotFound)
	default:
		m.Instance.State = cloud.InstanceStopped
	}
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", id, err)
	}
	return m, nil
}

// held reports whether a process holds the log of the machine, and reads its id there.
func (p *Provider) held(id string, m *machine) (held bool, err error) {
	log, err := os.OpenFile(p.path(id, ".log"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, flock(log, syscall.LOCK_UN), log.Close()) }()
	if err := flock(log, syscall.LOCK_SH); !errors.Is(err, syscall.EWOULDBLOCK) {
		return false, err
	}
	if line, err := bufio.NewReader(log).ReadString('\n'); err == nil {
		_, err = fmt.Sscan(line, &m.pid)
		return true, err
	}
	return true, nil
}

// boot records that a machine must run and starts its process. That writes its own id
// first: it is known also if this program is killed here.
func (p *Provider) boot(m *machine) (err error) {
	log, err := os.OpenFile(p.path(m.Instance.ID, ".log"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }() // the process has it, and with it the lock
	m.Want, m.Instance.State, m.Boots = cloud.InstanceRunning, cloud.InstancePending, m.Boots+1
	//nolint:forbidigo // the process outlives the call, and this program
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", "echo $$ && exec "+m.Config.ImageID)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr = log, log, []*os.File{log}, &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "MACHINE_NAME="+m.Instance.ID, "MACHINE_PROVIDER_ID=local:///"+p.Zone+"/"+m.Instance.ID,
		"MACHINE_TYPE="+m.Config.InstanceType, "MACHINE_USER_DATA="+m.Config.UserData, fmt.Sprint("MACHINE_BOOT=", m.Boots))
	if err = errors.Join(flock(log, syscall.LOCK_EX), p.save(m)); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errors.Join(err, flock(log, syscall.LOCK_UN))
	}
	go func() { _ = cmd.Wait() }() // how it ends is its own business
	return nil
}

// end records that the process of a machine must end, and asks it to.
func (p *Provider) end(m *machine, want cloud.InstanceState, force bool) error {
	if m.Want == want && !force {
		return nil
	}
	m.Want, m.KillAt = want, time.Now()
	if !force && m.pid != 0 { // a process that has only begun has nothing to end
		m.KillAt = m.KillAt.Add(cmp.Or(p.Grace, 10*time.Second))
	}
	if err := p.save(m); err != nil {
		return err
	}
	return m.signal(syscall.SIGTERM)
}

// signal signals the process and its children, with SIGKILL when it is time.
func (m *machine) signal(s syscall.Signal) error {
	if !time.Now().Before(m.KillAt) {
		s = syscall.SIGKILL
	}
	if m.pid == 0 {
		return nil
	}
	if err := syscall.Kill(-m.pid, s); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// save replaces the record of a machine.
func (p *Provider) save(m *machine) error {
	data, err := json.Marshal(m)
	if err := errors.Join(err, os.WriteFile(p.path(m.Instance.ID, ".new"), data, 0o600)); err != nil {
		return err
	}
	return os.Rename(p.path(m.Instance.ID, ".new"), p.path(m.Instance.ID, ".json"))
}
