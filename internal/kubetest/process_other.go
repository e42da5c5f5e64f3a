//go:build unix && !linux

package kubetest

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from the child. There is no
// parent-death signal here: a killed test leaves its processes running.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
