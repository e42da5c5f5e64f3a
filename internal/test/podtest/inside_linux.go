package podtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// insideName is how this program is called when it is to become a container.
const insideName = "trueup-container"

// insideVariable has what it becomes, as JSON.
const insideVariable = "TRUEUP_CONTAINER"

// inside is what a process of its own does before it becomes the program of a container.
type inside struct {
	Root           string
	Mounts         []mount
	ReadOnlyRoot   bool
	Args, Env      []string
	Dir            string
	User, Group    int
	Groups         []int
	NoNewPrivilege bool
}

// mount is a file or folder of this machine at a path in a container.
type mount struct {
	From, To string
	ReadOnly bool
}

func init() { //nolint:gochecknoinits // it is another program, which has no main of its own
	if os.Args[0] != insideName {
		return
	}
	runtime.LockOSThread()
	var in inside
	err := json.Unmarshal([]byte(os.Getenv(insideVariable)), &in)
	if err == nil {
		err = in.become()
	}
	fmt.Fprintf(os.Stderr, "cannot start: %v\n", err)
	os.Exit(128)
}

// become does not return unless it fails.
func (in *inside) become() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount /: %w", err)
	}
	if err := in.mountAll(); err != nil {
		return err
	}
	if err := unix.Chroot(in.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir(in.Dir); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		err  error
	}{
		{"setgroups", unix.Setgroups(in.Groups)},
		{"setgid", unix.Setresgid(in.Group, in.Group, in.Group)},
		{"setuid", unix.Setresuid(in.User, in.User, in.User)},
	} {
		if step.err != nil {
			return fmt.Errorf("%s: %w", step.name, step.err)
		}
	}
	if in.NoNewPrivilege {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	program, err := look(in.Args[0], in.Env)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", program, unix.Exec(program, in.Args, in.Env))
}

func (in *inside) mountAll() error {
	all := []mount{{From: in.Root, To: "/"}}
	for _, device := range []string{"null", "zero", "random", "urandom"} {
		all = append(all, mount{From: "/dev/" + device, To: "/dev/" + device})
	}
	for _, m := range append(all, in.Mounts...) {
		if err := m.bind(in.Root); err != nil {
			return err
		}
	}
	proc := filepath.Join(in.Root, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if in.ReadOnlyRoot {
		return mount{From: in.Root, To: "/", ReadOnly: true}.protect(in.Root)
	}
	return nil
}

// bind makes a file or folder of this machine visible below root.
func (m mount) bind(root string) error {
	info, err := os.Stat(m.From)
	if err != nil {
		return err
	}
	at := filepath.Join(root, m.To)
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(m.From, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.From, m.To, err)
	}
	if m.ReadOnly {
		return m.protect(root)
	}
	return nil
}

func (m mount) protect(root string) error {
	err := unix.Mount("", filepath.Join(root, m.To), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	if err != nil {
		return fmt.Errorf("mount %s read-only: %w", m.To, err)
	}
	return nil
}

// look returns where a program is, as a shell looks for it.
func look(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, variable := range env {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, name)
		if info, err := os.Stat(at); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return at, nil
		}
	}
	return "", fmt.Errorf("exec: %s: executable file not found in PATH (%s)", strconv.Quote(name), path)
}
