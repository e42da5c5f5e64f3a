//go:build unix

package main

import (
	"os"
	"syscall"
)

// become replaces this process by the program.
func become(args []string) error { return syscall.Exec(args[0], args, os.Environ()) }
