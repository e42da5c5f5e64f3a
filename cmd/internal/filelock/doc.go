// Package filelock lets one process at a time have a file. The system gives the lock back when the
// process dies. Solaris and AIX have no such lock here.
package filelock
