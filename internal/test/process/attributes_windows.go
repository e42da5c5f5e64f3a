package process

import "syscall"

// childAttributes keeps the terminal's Ctrl-C from the child. There is no
// parent-death signal here: a killed parent leaves its children running.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
