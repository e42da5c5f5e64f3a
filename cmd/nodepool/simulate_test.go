package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/programs"
)

// TestSimulateReplaysTheExample runs the program as its help shows it, and with what is
// wrong.
func TestSimulateReplaysTheExample(t *testing.T) {
	t.Parallel()
	program := programs.Path(t, "nodepool")
	simulate := func(args ...string) (stdout, stderr string, code int) {
		var out, wrong bytes.Buffer
		c := exec.CommandContext(t.Context(), program, append([]string{"simulate"}, args...)...) //nolint:gosec // the program that was built here
		c.Stdout, c.Stderr = &out, &wrong
		if err := c.Run(); err != nil {
			exit, ok := errors.AsType[*exec.ExitError](err)
			require.True(t, ok, err)
			code = exit.ExitCode()
		}
		return out.String(), wrong.String(), code
	}
	picture := filepath.Join(t.TempDir(), "pool.svg")
	example := []string{
		"-f",
		"testdata/trace.csv",
		"-p",
		"testdata/pool.yaml",
		"--instance-type",
		"m5.xlarge",
		"--price",
		"0.192",
		"--price-stopped",
		"0.011",
		"--min-standby-range",
		"2:4",
	}
	table, stderr, code := simulate(append(example, "--svg", picture)...)
	require.Zero(t, code, stderr)
	require.Contains(t, table, "* 3")
	require.Contains(t, table, "COST")
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "at most 24 machines: with minStandby 3")

	text, stderr, code := simulate(append(example, "-o", "json", "--min-standby", "2", "--pool-size", "20")...)
	require.Zero(t, code, stderr)
	var report struct {
		Chosen  int
		Results []struct{ MinStandby, Pods int }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, 2, report.Chosen)
	require.Len(t, report.Results, 3)
	require.Equal(t, 311, report.Results[0].Pods)

	bad := filepath.Join(t.TempDir(), "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("arrival,duration,cpu,memory\n1,x,1,1\n"), 0o600))
	for text, args := range map[string][]string{
		"--file: is empty, must be a CSV file; --pool-size: is 0, must be at least 1, or --pool a manifest; --instance-type: is empty, must be a type": {},
		`line 2, column duration: is "x", must be a span`:                                    {"-f", bad, "--pool-size", "3", "--instance-type", "m5.large"},
		`--min-standby-range: is "4:30", must be two numbers such as 0:8`:                    append(example, "--min-standby-range", "4:30"),
		`--min-standby-range: is "b", must be`:                                               append(example, "--min-standby-range", "b"),
		"--min-standby: is -1, must be at least 0":                                           append(example, "--min-standby", "-1"),
		`--output: is "xml", must be table or json`:                                          append(example, "-o", "xml"),
		"warmup: is 20m0s, must be at least 1s and at most 9m59s":                            append(example, "--warmup", "20m"),
		`--pool: is "none.yaml", must be a file that can be read: no such file or directory`: {"-p", "none.yaml"},
		`--file: is "none.csv", must be a file that can be read: no such file or directory`:  append(example, "-f", "none.csv"),
		`--price: is "NaN", must be a number`:                                                append(example, "--price", "NaN"),
		`--instance-type: is "nonsense", must be a type that is known, such as m5.large`:     append(example, "--instance-type", "nonsense"),
		"MinStandby: is 3, must be from 0 to Size (2)":                                       append(example, "--pool-size", "2"),
	} {
		stdout, stderr, code := simulate(args...)
		require.Equal(t, 2, code, stderr)
		require.Contains(t, stderr, text)
		require.Empty(t, stdout)
	}
}
