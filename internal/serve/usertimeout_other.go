//go:build !linux

package serve

import "syscall"

// userTimeout does nothing: the kernel has no such option, or another one.
func userTimeout(string, string, syscall.RawConn) error { return nil }
