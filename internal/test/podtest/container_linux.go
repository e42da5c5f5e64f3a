package podtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// longest is the longest pause before a container is started again.
const longest = 10 * time.Second

// keep runs a container until it has succeeded, or until it has failed and is not to be run
// again, and with always for ever. It reports whether it has succeeded.
func (p *pod) keep(ctx context.Context, c corev1.Container, onFailure, always bool) bool {
	wait := again
	for {
		code, ran := p.once(ctx, c)
		switch {
		case ctx.Err() != nil:
			return false
		case !ran:
			if !pause.For(ctx, again) {
				return false
			}
			continue
		case code == 0 && !always:
			return true
		case code != 0 && !onFailure:
			return false
		}
		p.set(c.Name, func(s *corev1.ContainerStatus) {
			s.LastTerminationState = s.State
			s.RestartCount++
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s", wait, c.Name),
			}}
		})
		if !pause.For(ctx, wait) {
			return false
		}
		wait = min(2*wait, longest)
	}
}

// once runs a container once. It has not run if something is missing, which its status says.
func (p *pod) once(ctx context.Context, c corev1.Container) (code int, ran bool) {
	image, found := p.node.options.Images[c.Image]
	if !found {
		p.waits(c.Name, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: not found", c.Image))
		return 0, false
	}
	in, err := p.inside(ctx, c, image)
	if err != nil {
		p.waits(c.Name, "CreateContainerConfigError", err.Error())
		return 0, false
	}
	log, err := os.OpenFile(p.path(c.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.waits(c.Name, "CreateContainerError", err.Error())
		return 0, false
	}
	defer log.Close() //nolint:errcheck // the process has its own descriptor
	command, err := command(in, log)
	if err != nil {
		p.waits(c.Name, "CreateContainerError", err.Error())
		return 0, false
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := metav1.Now()
	err = p.link.run(command, func() {
		p.set(c.Name, func(s *corev1.ContainerStatus) {
			started := c.StartupProbe == nil
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
			s.ContainerID = fmt.Sprintf("process://%d", command.Process.Pid)
			s.ImageID, s.Started, s.Ready = c.Image, &started, started && c.ReadinessProbe == nil
		})
		go p.watch(ctx, c, command.Process, ended)
	})
	close(ended)
	exit, message := exitOf(command, err), ""
	if text, err := os.ReadFile(p.path(c.Name, "message")); err == nil {
		message = string(text)
	}
	if exit != 0 && message == "" && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		message = p.tail(c.Name)
	}
	p.set(c.Name, func(s *corev1.ContainerStatus) {
		reason, started := "Completed", false
		if exit != 0 {
			reason = "Error"
		}
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(exit), Reason: reason, Message: message, //nolint:gosec // a byte
			StartedAt: began, FinishedAt: metav1.Now(), ContainerID: s.ContainerID,
		}}
		s.Ready, s.Started = false, &started
	})
	return exit, true
}

func exitOf(command *exec.Cmd, err error) int {
	if command.ProcessState == nil {
		return 128 // it did not start
	}
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmp.Or(command.ProcessState.ExitCode(), map[bool]int{true: 0, false: 1}[err == nil])
}

// watch asks the probes of a container while it runs, and ends it when the pod is stopped, or
// when it is not alive.
func (p *pod) watch(ctx context.Context, c corev1.Container, process *os.Process, ended <-chan struct{}) {
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	dead := make(chan struct{})
	go func() {
		if p.probes(asked, c) {
			close(dead)
		}
	}()
	grace := 30 * time.Second
	if s := p.object.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	select {
	case <-ended:
		return
	case <-dead:
	case <-ctx.Done():
		p.mu.Lock()
		grace = p.grace
		p.mu.Unlock()
	}
	_ = process.Signal(syscall.SIGTERM) // an error is that it has ended
	select {
	case <-ended:
	case <-time.After(grace):
		_ = process.Kill()
	}
}

// inside returns what a container is to be.
func (p *pod) inside(ctx context.Context, c corev1.Container, image Image) (*inside, error) {
	env, err := p.environment(ctx, c)
	if err != nil {
		return nil, err
	}
	root, err := p.folder(c.Name, "root")
	if err != nil {
		return nil, err
	}
	in := &inside{Root: root, Dir: cmp.Or(c.WorkingDir, "/"), Env: env, Args: image.Entrypoint}
	if len(c.Command) > 0 {
		in.Args = expandAll(c.Command, env)
	}
	in.Args = slices.Concat(in.Args, expandAll(c.Args, env))
	if len(in.Args) == 0 {
		return nil, errors.New("no command specified")
	}
	if err := p.secure(in, c.SecurityContext, image); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(image.Files)) {
		in.Mounts = append(in.Mounts, mount{From: image.Files[path], To: path, ReadOnly: true})
	}
	own, err := p.ownFiles(c)
	if err != nil {
		return nil, err
	}
	in.Mounts = append(in.Mounts, own...)
	for _, m := range c.VolumeMounts {
		from := filepath.Join(p.volumes[m.Name], filepath.Clean("/"+m.SubPath))
		in.Mounts = append(in.Mounts, mount{From: from, To: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return in, nil
}

// ownFiles makes the files that every container has.
func (p *pod) ownFiles(c corev1.Container) ([]mount, error) {
	var hosts strings.Builder
	fmt.Fprintf(&hosts, "127.0.0.1 localhost\n%s %s\n%s %s\n", p.link.address, p.object.Name, p.node.Address(), apiServer)
	for _, name := range slices.Sorted(maps.Keys(p.node.options.Hosts)) {
		fmt.Fprintf(&hosts, "%s %s\n", p.node.options.Hosts[name], name)
	}
	for _, alias := range p.object.Spec.HostAliases {
		fmt.Fprintf(&hosts, "%s %s\n", alias.IP, strings.Join(alias.Hostnames, " "))
	}
	if err := os.MkdirAll(p.path(c.Name, "root", "tmp"), 0o777); err != nil {
		return nil, err
	}
	err := errors.Join(
		os.Chmod(p.path(c.Name, "root", "tmp"), os.ModeSticky|0o777),
		os.WriteFile(p.path(c.Name, "hosts"), []byte(hosts.String()), 0o644),
		os.WriteFile(p.path(c.Name, "message"), nil, 0o666),
		os.Chmod(p.path(c.Name, "message"), 0o666),
	)
	return []mount{
		{From: p.path(c.Name, "hosts"), To: "/etc/hosts", ReadOnly: true},
		{From: p.path(c.Name, "message"), To: cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)},
	}, err
}

// secure sets who runs the container, and what it may not do.
func (p *pod) secure(in *inside, own *corev1.SecurityContext, image Image) error {
	user, group := image.User, int64(0)
	nonRoot := false
	if s := p.object.Spec.SecurityContext; s != nil {
		user, group = value(s.RunAsUser, user), value(s.RunAsGroup, group)
		nonRoot = value(s.RunAsNonRoot, nonRoot)
		for _, g := range s.SupplementalGroups {
			in.Groups = append(in.Groups, int(g))
		}
		if s.FSGroup != nil {
			in.Groups = append(in.Groups, int(*s.FSGroup))
		}
	}
	if own != nil {
		user, group = value(own.RunAsUser, user), value(own.RunAsGroup, group)
		nonRoot = value(own.RunAsNonRoot, nonRoot)
		in.ReadOnlyRoot = value(own.ReadOnlyRootFilesystem, false)
		in.NoNewPrivilege = !value(own.AllowPrivilegeEscalation, true)
	}
	if nonRoot && user == 0 {
		return errors.New("container has runAsNonRoot and image will run as root")
	}
	in.User, in.Group = int(user), int(group)
	return nil
}

func value[T any](pointer *T, otherwise T) T {
	if pointer == nil {
		return otherwise
	}
	return *pointer
}

// command returns the process that becomes the container.
func command(in *inside, log *os.File) (*exec.Cmd, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	command := exec.Command("/proc/self/exe") //nolint:noctx // ended by watch, with a grace
	command.Args = []string{insideName}
	command.Env = []string{insideVariable + "=" + string(text)}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	return command, nil
}

// tail returns the end of what a container has printed.
func (p *pod) tail(name string) string {
	text, err := os.ReadFile(p.path(name + ".log"))
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-2048):])
}
