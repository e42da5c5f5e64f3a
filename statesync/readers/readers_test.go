// Package readers_test runs the readers of statesync, in three languages, against one server with faults.
package readers_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// replica is the reader of package statesync.
func replica() statesynctest.ReaderProgram {
	return statesynctest.ReaderProgram{Run: func(ctx context.Context, url, scope, token string, proven func(statesynctest.ReaderState)) error {
		client := &statesync.Client{URL: url, Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}}
		defer client.Close()
		tell := &teller{source: client, proven: proven}
		tell.replica = &statesync.Replica{
			Source: tell, Scope: scope, Handle: func(context.Context, statesync.Item) error { return nil },
		}
		return tell.replica.Start(ctx)
	}}
}

// teller tells of each frame that has made another state complete.
type teller struct {
	source  statesync.Source
	replica *statesync.Replica
	proven  func(statesynctest.ReaderState)

	last    *statesync.Snapshot
	deleted map[statesync.Key]bool
}

// Watch passes a stream on. A Replica has one at a time.
func (t *teller) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	if w.Cursor.Version == 0 || t.deleted == nil {
		t.deleted = map[statesync.Key]bool{}
	}
	return t.source.Watch(ctx, w, func(f statesync.Frame) error {
		if err := receive(f); err != nil {
			return err
		}
		for _, i := range f.Items {
			if delete(t.deleted, i.Key); i.Deleted {
				t.deleted[i.Key] = true
			}
		}
		if state, complete := t.replica.Complete(); complete && f.Type != statesync.FrameHeader {
			t.tell(f, state)
		}
		return nil
	})
}

func (t *teller) tell(f statesync.Frame, state statesync.Snapshot) {
	if f.Type != statesync.FrameSynced && t.last.Cursor.Version == state.Cursor.Version {
		return
	}
	told := statesynctest.ReaderState{Epoch: state.Cursor.Epoch, Version: state.Cursor.Version}
	for _, i := range state.Items {
		if !i.Deleted {
			told.Items = append(told.Items, i)
		}
	}
	for key := range t.deleted {
		told.Deleted = append(told.Deleted, key)
	}
	if f.Type == statesync.FrameSynced && t.last != nil {
		for key, i := range t.last.Items {
			if _, listed := state.Items[key]; !listed && !i.Deleted {
				told.Absent = append(told.Absent, key)
			}
		}
	}
	t.last, t.deleted = &state, map[statesync.Key]bool{}
	t.proven(told)
}

// lacks returns what is missing here for a reader in another language, and how to install it.
func lacks(language string) string {
	switch language {
	case "Python":
		if _, err := exec.LookPath("python3"); err != nil {
			return "python3 is not installed (Debian: apt-get install python3)"
		}
	case "TypeScript":
		if _, err := exec.LookPath("node"); err != nil {
			return "node is not installed (Debian: apt-get install nodejs npm)"
		}
		if _, err := os.Stat("typescript/node_modules/typescript"); err != nil {
			return "tsc is not installed: run npm ci in statesync/readers/typescript"
		}
	}
	return ""
}

// need skips a test that lacks a part of the machine, or fails it where everything must be there.
func need(t *testing.T, language string) {
	t.Helper()
	what := lacks(language)
	switch {
	case what == "":
	case os.Getenv("TRUEUP_REQUIRE_SERVICES") == "1":
		t.Fatal(what)
	default:
		t.Skip(what)
	}
}

// program returns the reader of a language, which is built first where it must be.
func program(t *testing.T, language string) statesynctest.ReaderProgram {
	t.Helper()
	need(t, language)
	switch language {
	case "Python":
		// What is found first may be a script that finds the interpreter, and costs more than the reader.
		output, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
		require.NoError(t, err)
		return statesynctest.Command(strings.TrimSpace(string(output)), "-I", "-S", "python/trueup_statesync.py")
	case "TypeScript":
		folder := compiled(t)
		return statesynctest.Command("node", filepath.Join(folder, "trueup_statesync.js"))
	}
	return replica()
}

// compiled returns the folder with the reader in TypeScript, as JavaScript.
func compiled(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, "node", "typescript/node_modules/typescript/bin/tsc", "--project", "typescript", "--outDir", folder).
		CombinedOutput()
	require.NoError(t, err, "%s", output)
	// Node reads there that these are modules.
	require.NoError(t, os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"type":"module"}`), 0o600))
	return folder
}

// TestAReaderRefusesWhatIsNoURL: it would try for ever.
func TestAReaderRefusesWhatIsNoURL(t *testing.T) {
	t.Parallel()
	for language, program := range map[string][]string{
		"Python":     {"python3", "-c", "import sys; from trueup_statesync import Reader; Reader(sys.argv[1], 'eu')"},
		"TypeScript": {"node", "--input-type=module", "--eval", "import { Reader } from './trueup_statesync.js'; new Reader(process.argv[1], 'eu')"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			need(t, language)
			folder := "python"
			if language == "TypeScript" {
				folder = compiled(t)
			}
			for _, url := range []string{"nonsense", "ftp://example.com", "https://"} {
				command := exec.CommandContext(t.Context(), program[0], append(program[1:len(program):len(program)], url)...)
				command.Dir, command.Env = folder, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
				output, err := command.CombinedOutput()
				require.Error(t, err, url)
				kind := map[string]string{"Python": "ValueError", "TypeScript": "Error"}[language]
				require.Contains(t, string(output), kind+": url: must be an http or https URL, such as https://control.example/sync")
			}
		})
	}
}

// TestReadersOfEachLanguageConform prints how many do.
func TestReadersOfEachLanguageConform(t *testing.T) {
	t.Parallel()
	var conform atomic.Int64
	t.Cleanup(func() { fmt.Printf("figure door_readers_conforming %d count\n", conform.Load()) })
	for _, language := range []string{"Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if language == "TypeScript" && testing.Short() {
				t.Skip("long: sixty processes of Node take ten seconds")
			}
			reader := program(t, language)
			t.Cleanup(func() {
				if !t.Failed() && !t.Skipped() {
					conform.Add(1)
				}
			})
			statesynctest.RunReader(t, reader)
			statesynctest.RunVectors(t, "../testdata/protocol/streams.json", reader)
		})
	}
}
