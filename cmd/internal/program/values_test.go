package program_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestOneAddressInTwoSpellings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{":8080", ":8080", true},
		{":8080", ":08080", true},
		{":8080", "0.0.0.0:8080", true},
		{":8080", "[::]:8080", true},
		{":8080", "127.0.0.1:8080", true},
		{"[::]:8080", "[::1]:8080", true},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true},
		{"Host:8080", "host:8080", true},
		{"127.0.0.1:8080", "127.0.0.2:8080", false},
		{"0.0.0.0:8080", "[::1]:8080", false},
		{"a:8080", "b:8080", false},
		{":8080", ":8081", false},
		{":0", ":0", false},
		{":http", ":80", false},
		{":8080", "", false},
		{"", "", false},
	} {
		require.Equal(t, test.same, program.SameAddress(test.a, test.b), "%s %s", test.a, test.b)
		require.Equal(t, test.same, program.SameAddress(test.b, test.a), "%s %s", test.b, test.a)
	}
	err := program.CheckAddresses(":8080", "0.0.0.0:8080")
	require.ErrorContains(t, err, `--metrics-bind-address: is "0.0.0.0:8080", must be another address`)
}

func TestAFileIsNoFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{"", dir, filepath.Join(dir, "not", "yet")} {
		require.NoError(t, program.CheckFolder(path), path)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		require.ErrorContains(t, program.CheckFolder(path), "must be a folder, not a file")
	}
}

func TestAFolderIsMadeOrRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, program.MakeFolder("--dir", ""))
	made := filepath.Join(dir, "not", "yet")
	require.NoError(t, program.MakeFolder("--dir", made))
	require.NoError(t, program.MakeFolder("--dir", made))
	left, err := os.ReadDir(made)
	require.NoError(t, err)
	require.Empty(t, left)
	for _, path := range []string{file, filepath.Join(file, "below"), "/proc/none"} {
		require.ErrorContains(t, program.MakeFolder("--dir", path), `--dir: is "`+path+`", must be a folder that can be made and written: `)
	}
}

// TestAValueThatIsNone sets numbers to NaN and infinity, and required values to nothing. One
// error names every flag that is wrong.
func TestAValueThatIsNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args        []string
		environment map[string]string
		want        string
	}{
		"flags":     {[]string{"--rate=NaN", "--region="}, nil, `--rate: is "NaN", must be a number such as 0.5; --region: is "", must be a region`},
		"variables": {nil, map[string]string{"TOOL_RATE": "-Inf", "TOOL_REGION": ""}, `TOOL_RATE: is "-Inf", must be a number such as 0.5`},
		"neither":   {[]string{"--rate=-0.5", "--note="}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return nil }}
			command.Flags().Float64("rate", 1, "a number")
			program.Settings(command.Flags(), []program.Setting{
				{Flag: "note", Variable: "TOOL_NOTE", Usage: "may be empty"},
				{Flag: "region", Variable: "TOOL_REGION", Usage: "may not", Must: "a region"},
			})
			program.Bind(command, "TOOL_", func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
			var stderr bytes.Buffer
			code := program.Run(t.Context(), command, append([]string{}, test.args...), io.Discard, &stderr)
			if test.want == "" {
				require.Zero(t, code, stderr.String())
				require.True(t, program.Emptied(command.Flags(), "TOOL_NOTE"))
				require.False(t, program.Emptied(command.Flags(), "TOOL_REGION"))
				return
			}
			require.Equal(t, program.ExitUsage, code)
			require.Equal(t, "tool: "+test.want+"\n", stderr.String())
		})
	}
}
