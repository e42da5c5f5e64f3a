// Package logtest keeps what a program under test logs.
package logtest

import (
	"bytes"
	"sync"
)

// Log is a writer that keeps everything, for a test that reads it while the program goes
// on. Its methods can be called concurrently. The zero value is empty.
type Log struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

// String returns all that was written since the last Reset.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// Reset forgets all that was written.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer.Reset()
}
