package program_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestAnArgumentIsOneWordOfAShell(t *testing.T) {
	t.Parallel()
	for line, arguments := range map[string][]string{
		"echo cluster eu-1 sha256:ab":             {"cluster", "eu-1", "sha256:ab"},
		"echo -- cluster '--server=http://evil'":  {"cluster", "--server=http://evil"},
		`echo 'a'\'';$(reboot)' '' ':'`:           {"a';$(reboot)", "", ":"},
		"echo 'a\ufffdb' '\ufffd[31mred' '~' '*'": {"a\nb", "\x1b[31mred", "~", "*"},
		"echo 'a\ufffdb'":                         {"a\u202eb"},
	} {
		require.Equal(t, line, program.CommandLine("echo", arguments...))
	}
	line := program.CommandLine("printf '<%s>'", "a';$(id)", "`id`", `\n"`, "$HOME", "&|;")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "<a';$(id)><`id`><\\n\"><$HOME><&|;>", string(out))
}
