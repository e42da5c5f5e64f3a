package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// display shows the steps of the demo: on a terminal a line that changes in
// place while the step runs, elsewhere a line for each change.
type display struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	name  string
	start time.Time
	last  string
}

func newDisplay(out *os.File) *display {
	return &display{out: out, terminal: term.IsTerminal(int(out.Fd()))}
}

// step begins a step.
func (d *display) step(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.name, d.start, d.last = name, time.Now(), ""
	d.draw("")
}

// progress prints how far the step is.
func (d *display) progress(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw(fmt.Sprintf(format, args...))
}

// done ends the step.
func (d *display) done(result string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begin := ""
	if d.terminal {
		begin = "\r\033[K\033[32m✓\033[0m "
	}
	d.write("%s%s: %s (%s)\n", begin, d.name, result, time.Since(d.start).Round(10*time.Millisecond))
}

func (d *display) draw(text string) {
	switch {
	case d.terminal:
		d.write("\r\033[K… %s %s", d.name, text)
	case text != d.last && text != "":
		d.write("%s: %s\n", d.name, text)
	}
	d.last = text
}

// write prints text. An error of the terminal does not stop the demo.
func (d *display) write(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...)
}

// print writes lines that stay.
func (d *display) print(lines ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write("%s\n", strings.Join(lines, "\n"))
}

// Write takes the progress of a build.
func (d *display) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		d.progress("%s", strings.TrimPrefix(strings.TrimSpace(line), "kubetest: "))
	}
	return len(p), nil
}
