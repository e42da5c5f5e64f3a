package program_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestTheExitStatusTellsAWrongCallFromAFailure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           []string
		err            error
		code           int
		stdout, stderr string
	}{
		{code: 0},
		{args: []string{"version"}, stdout: "tool " + program.Version() + "\n"},
		{args: []string{"--version"}, err: errors.New("not run"), stdout: "tool " + program.Version() + "\n"},
		{args: []string{"-v", "more"}, err: errors.New("not run"), stdout: "tool " + program.Version() + "\n"},
		{args: []string{"--version=false"}, err: errors.New("no disk"), code: program.ExitFailure, stderr: "tool: no disk\n"},
		{err: errors.New("no disk"), code: program.ExitFailure, stderr: "tool: no disk\n"},
		{err: errors.Join(errors.New("one\t1"), errors.New("two")), code: program.ExitFailure, stderr: "tool: one 1; two\n"},
		{err: program.Usagef("--size: %w", errors.New("too small")), code: program.ExitUsage, stderr: "tool: --size: too small\n"},
		{args: []string{"--wrong"}, code: program.ExitUsage, stderr: "tool: unknown flag: --wrong\n"},
		{args: []string{"version", "--wrong"}, code: program.ExitUsage, stderr: "tool: unknown flag: --wrong\n"},
		{args: []string{"more"}, code: program.ExitUsage, stderr: `tool: unknown command "more" for "tool"` + "\n"},
		{args: []string{"version", "more"}, code: program.ExitUsage, stderr: `tool: unknown command "more" for "tool version"` + "\n"},
	} {
		command := &cobra.Command{Use: "tool", Args: program.NoArgs, RunE: func(*cobra.Command, []string) error { return test.err }}
		var stdout, stderr bytes.Buffer
		args := append([]string{}, test.args...)
		require.Equal(t, test.code, program.Run(t.Context(), command, args, &stdout, &stderr), test.args)
		require.Equal(t, test.stdout, stdout.String(), test.args)
		require.Equal(t, test.stderr, stderr.String(), test.args)
	}
}

func TestTheLoggerWritesJSONFromItsLevelUp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger, err := program.NewLogger(&out, "warn")
	require.NoError(t, err)
	logger.InfoContext(t.Context(), "quiet")
	logger.WarnContext(t.Context(), "loud", slog.Int("n", 1), slog.Group("took", slog.Duration("all", 1500*time.Millisecond)))
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "loud", line["msg"])
	require.Equal(t, map[string]any{"all": "1.5s"}, line["took"])
	_, err = program.NewLogger(&out, "chatty")
	require.ErrorContains(t, err, `"chatty"`)
}

func TestTheVersionNamesTheToolchain(t *testing.T) {
	t.Parallel()
	require.Contains(t, program.Version(), "go1.")
}

func TestATokenIsOneWordOfItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	_, err := program.ReadToken(file)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for content, want := range map[string]string{"sesame": "sesame", " sesame\n": "sesame", "": "", "\n": "", "se same": "", "ses\name": "", "sésame": ""} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		token, err := program.ReadToken(file)
		require.Equal(t, want, token)
		if want == "" {
			require.ErrorContains(t, err, file)
			require.NotContains(t, err.Error(), "same")
		}
	}
}
