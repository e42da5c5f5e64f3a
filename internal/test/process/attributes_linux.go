package process

import "syscall"

// childAttributes makes the kernel kill the child when the thread that started
// it ends, and keeps the terminal's Ctrl-C from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
