package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func TestEachFlagHasAVariable(t *testing.T) {
	t.Setenv("TRUEUP_OUTPUT", "xml") // of a flag of all commands
	var out, errs bytes.Buffer
	require.Equal(t, program.ExitUsage, program.Run(t.Context(), command(nil), []string{"sets"}, &out, &errs))
	require.Contains(t, errs.String(), `is "xml", must be json, yaml or name`)

	require.Zero(t, program.Run(t.Context(), command(nil), []string{"watch", "--help"}, &out, &errs))
	for _, name := range []string{"SET", "NAMESPACE", "FILENAME", "INTERVAL"} {
		require.Equal(t, 1, strings.Count(out.String(), "[TRUEUP_"+name+"]"), out.String())
	}
}

func TestTheVariableOfTheKubeconfigMayNameSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"one", "two"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: Config, contexts: [{name: "+name+", context: {}}]}"), 0o600))
		files = append(files, file)
	}
	t.Setenv("KUBECONFIG", strings.Join(files, string(os.PathListSeparator)))
	var out, errs bytes.Buffer
	require.Equal(t, program.ExitUsage, program.Run(t.Context(), command(nil), []string{"sets", "--context", "three"}, &out, &errs))
	require.Contains(t, errs.String(), `--context: is "three", must be one of the kubeconfig: one, two`)
}

func TestAKubeconfigThatIsNotThereIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("KUBECONFIG", missing)
	var out, errs bytes.Buffer
	require.Equal(t, program.ExitUsage, program.Run(t.Context(), command(nil), []string{"sets"}, &out, &errs))
	require.Equal(t, "trueup: KUBECONFIG: names no cluster: stat "+missing+": no such file or directory\n", errs.String())
}

func TestAMistypedCommandIsNamedBeforeItsFlags(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Equal(t, program.ExitUsage, program.Run(t.Context(), command(nil), []string{"dif", "-f", "shop"}, &out, &errs))
	require.Equal(t, `trueup: unknown command "dif" for "trueup", is it diff?`+"\n", errs.String())
}

func TestThePartIsNamedAfterTheOnlyFolderOrFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "Shop_1.d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web.v2.yaml"), nil, 0o600))
	for _, c := range []struct {
		part       string
		files      []string
		want, fail string
	}{
		{"", []string{filepath.Join(dir, "Shop_1.d") + "/"}, "shop-1-d", ""},
		{"", []string{filepath.Join(dir, "web.v2.yaml")}, "web-v2", ""},
		{"given", []string{"a", "b"}, "given", ""},
		{"Not_good", []string{"a"}, "", `--part: is "Not_good", must be letters in lower case`},
		{"", []string{"a", "b"}, "", "--part: is missing, must be a name for the objects: a, b has none"},
		{"", []string{"-"}, "", "--part: is missing, must be a name for the objects: - has none"},
		{"", []string{"/"}, "", "--part: is missing, must be a name for the objects: / makes none"},
	} {
		o := options{part: c.part, files: c.files}
		if err := o.namePart(); c.fail != "" {
			require.ErrorContains(t, err, c.fail)
		} else {
			require.NoError(t, err)
			require.Equal(t, c.want, o.part)
		}
	}
}

// TestACommandEndsThatWaitsForAServer has a server that takes requests and answers none.
func TestACommandEndsThatWaitsForAServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel() // as a person who presses Ctrl-C
		<-asked
	}))
	defer server.Close()
	defer close(asked)
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(kubeconfig, "http://simtest", server.URL)), 0o600))
	var out, errs bytes.Buffer
	require.NotZero(t, program.Run(ctx, command(nil), []string{"who", "cm/a", "--kubeconfig", path}, &out, &errs))
	require.Contains(t, errs.String(), "canceled")

	folder := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"), 0o600))
	args := []string{"diff", "-f", folder, "--timeout", "100ms", "--kubeconfig", path}
	require.Equal(t, statusCluster, program.Run(t.Context(), command(nil), args, &out, &errs))
	require.Contains(t, errs.String(), "no answer within 100ms (--timeout)")
}

func TestANumberThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--timeout=0s": "--timeout: is 0s, must be above 0", "--timeout=-5s": "--timeout: is -5s, must be above 0",
		"--interval=0s": "--interval: is 0s, must be above 0", "--limit=-1": "--limit: is -1, must be 0 or more",
	} {
		var out, errs bytes.Buffer
		status := program.Run(t.Context(), command(nil), []string{"watch", "-f", t.TempDir(), "--part", "a", flag}, &out, &errs)
		require.Equal(t, program.ExitUsage, status)
		require.Contains(t, errs.String(), want)
	}
}
