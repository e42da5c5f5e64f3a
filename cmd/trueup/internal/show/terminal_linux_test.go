package show_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// terminal opens a terminal. A person types at the keyboard, and sees what is read from it.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { keyboard.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { screen.Close() })
	mode, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	require.NoError(t, err)
	mode.Lflag &^= unix.ECHO // what is typed would stand between what is printed
	require.NoError(t, unix.IoctlSetTermios(int(screen.Fd()), unix.TCSETS, mode))
	return keyboard, screen
}

// seen returns what the screen has shown up to a mark, which it prints.
func seen(t *testing.T, keyboard, screen *os.File) string {
	t.Helper()
	const mark = "<end>"
	_, err := io.WriteString(screen, mark)
	require.NoError(t, err)
	var text []byte
	for !bytes.HasSuffix(text, []byte(mark)) {
		part := make([]byte, 1024)
		n, err := keyboard.Read(part)
		require.NoError(t, err)
		text = append(text, part[:n]...)
	}
	return string(text[:len(text)-len(mark)])
}

func TestColourIsForATerminalOnly(t *testing.T) {
	keyboard, screen := terminal(t)
	var pipe bytes.Buffer
	some := diff.Change{Action: diff.Create, APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	printTo := func(out, errs io.Writer) {
		t.Helper()
		p, err := show.New(out, errs, "", false)
		require.NoError(t, err)
		p.Change(some)
		p.Error(errors.New("wrong"))
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	printTo(screen, &pipe)
	require.Equal(t, "\x1b[32m+ create ConfigMap/shop/a\x1b[0m\r\n", seen(t, keyboard, screen))
	require.Equal(t, "wrong\n", pipe.String(), "the errors go into a file")

	pipe.Reset()
	printTo(&pipe, screen)
	require.Equal(t, "\x1b[31mwrong\x1b[0m\r\n", seen(t, keyboard, screen))
	require.Equal(t, "+ create ConfigMap/shop/a\n", pipe.String())

	t.Setenv("NO_COLOR", "1")
	printTo(screen, screen)
	require.Equal(t, "+ create ConfigMap/shop/a\r\nwrong\r\n", seen(t, keyboard, screen))
}

func TestAPersonIsAskedOnATerminal(t *testing.T) {
	t.Parallel()
	keyboard, screen := terminal(t)
	p, err := show.New(screen, screen, "", false)
	require.NoError(t, err)
	for answer, want := range map[string]bool{"y": true, "YES": true, "": false, "n": false, "yesterday": false} {
		_, err := io.WriteString(keyboard, answer+"\n")
		require.NoError(t, err)
		p.Progress("1 of 2")
		require.Equal(t, want, p.Ask(screen, "Delete 1 object?"), "%q", answer)
		const question = "\r\x1b[K1 of 2\r\x1b[KDelete 1 object? [y/N] " // in the place of the progress
		require.Contains(t, seen(t, keyboard, screen), question)
	}
	var pipe bytes.Buffer
	p, err = show.New(screen, &pipe, "", false)
	require.NoError(t, err)
	_, err = io.WriteString(keyboard, "y\n")
	require.NoError(t, err)
	require.False(t, p.Ask(screen, "Delete 1 object?"), "nobody would see the question")
	require.Empty(t, pipe.String())
}
