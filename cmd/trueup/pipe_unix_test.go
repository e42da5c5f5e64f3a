//go:build unix

package main

import "syscall"

// pipe makes what is no regular file.
func pipe(path string) error { return syscall.Mkfifo(path, 0o600) }
