//go:build linux || darwin

package main

import "syscall"

// freeSpace returns the bytes that may be written below the folder.
func freeSpace(dir string) (uint64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true //nolint:gosec // its type differs between systems
}
