package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// columns are those of the terminal: a changed image with its author and time fits in a line.
const columns, rows = 110, 40

// A step is a command that a person types.
type step struct {
	command, answer string // to the question that it asks
	status          int
}

func steps() []step {
	return []step{
		{command: "trueup apply -f shop --wait"},
		{command: "kubectl set image deployment/web web=web:1.5 --field-manager alice"},
		{command: "trueup diff -f shop", status: 1},
		{command: "trueup who deployment/web | grep -e FIELD -e alice | column -t"},
		{command: "trueup apply -f shop"},
		{command: "rm shop/banner.yaml"},
		{command: "trueup prune -f shop", answer: "n", status: 4},
	}
}

// A session records what a terminal shows: a head, then an event a line.
type session struct {
	dir  string
	env  []string
	cast bytes.Buffer
	now  time.Duration
}

// play types each command behind a prompt, bold, and runs it.
func (s *session) play(ctx context.Context) error {
	fmt.Fprintf(&s.cast, `{"version":2,"width":%d,"height":%d,"idle_time_limit":1.5,"title":"trueup"}`+"\n", columns, rows)
	for i, step := range steps() {
		s.shows(time.Second, strings.Repeat("\r\n", min(i, 1))+"\x1b[1m$ ")
		for _, char := range step.command {
			s.shows(40*time.Millisecond, string(char))
		}
		s.shows(300*time.Millisecond, "\x1b[0m\r\n")
		if status, err := s.run(ctx, step.command, step.answer); status != step.status || ctx.Err() != nil {
			return fmt.Errorf("%s: ends with status %d, must be %d: %w", step.command, status, step.status, errors.Join(err, ctx.Err()))
		}
	}
	return nil
}

// shows records what the terminal shows, some time after what it has shown before.
func (s *session) shows(later time.Duration, text string) {
	s.now += later
	event := json.NewEncoder(&s.cast)
	event.SetEscapeHTML(false)
	event.Encode([]any{float64(s.now.Milliseconds()) / 1000, "o", text}) //nolint:errcheck // a number and texts
}

// run runs a command on a terminal, and returns the status that it ends with.
func (s *session) run(ctx context.Context, command, answer string) (int, error) {
	c := exec.CommandContext(ctx, "script", "-qefc", fmt.Sprintf("stty cols %d rows %d; %s", columns, rows, command), "/dev/null")
	c.Dir, c.Env = s.dir, s.env
	keys, noKeys := c.StdinPipe()
	shown, notShown := c.StdoutPipe()
	if err := errors.Join(noKeys, notShown, c.Start()); err != nil {
		return -1, err
	}
	in, text, last := bufio.NewReader(shown), "", time.Now()
	for char, _, err := in.ReadRune(); err == nil; char, _, err = in.ReadRune() {
		if text += string(char); in.Buffered() > 0 {
			continue
		}
		s.shows(time.Since(last), text)
		if answer != "" && strings.HasSuffix(text, "] ") {
			s.now += time.Second
			if _, err := io.WriteString(keys, answer+"\n"); err != nil {
				return -1, err
			}
			answer = ""
		}
		text, last = "", time.Now()
	}
	err := c.Wait()
	return c.ProcessState.ExitCode(), err
}
