package program_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// TestAFlagGoesBeforeItsVariable and both before the default; an error names the one that
// was wrong.
func TestAFlagGoesBeforeItsVariable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args        []string
		environment map[string]string
		want        string // of the four settings
		wrong       string
	}{
		"defaults":            {want: "1s  standard "},
		"flags":               {args: []string{"--pause", "2s", "--own", "a", "--other=b", "--region", "eu"}, want: "2s a b eu"},
		"variables":           {environment: map[string]string{"TOOL_PAUSE": "3s", "NAME_OF_THE_SEED": "c", "TOOL_OTHER": "d", "TOOL_REGION": "us"}, want: "3s c d us"},
		"both":                {args: []string{"--pause=2s", "--region=eu"}, environment: map[string]string{"TOOL_PAUSE": "3s", "TOOL_REGION": "us"}, want: "2s  standard eu"},
		"an empty variable":   {environment: map[string]string{"TOOL_PAUSE": "", "TOOL_OTHER": ""}, want: "1s  standard "},
		"a wrong variable":    {environment: map[string]string{"TOOL_PAUSE": "soon"}, wrong: `tool: TOOL_PAUSE: is "soon", must be a duration such as 90s or 1h30m`},
		"a wrong flag":        {args: []string{"--pause", "soon"}, wrong: `tool: --pause: is "soon", must be a duration such as 90s or 1h30m`},
		"refused, a flag":     {args: []string{"--region", "no"}, wrong: `tool: --region: is "no", must be a region`},
		"refused, a variable": {environment: map[string]string{"TOOL_REGION": "no"}, wrong: `tool: TOOL_REGION: is "no", must be a region`},
		"checked, a flag":     {args: []string{"--own", "bad"}, wrong: "tool: --own is bad"},
		"checked, a variable": {environment: map[string]string{"NAME_OF_THE_SEED": "bad"}, wrong: "tool: NAME_OF_THE_SEED is bad"},
		"of a subcommand":     {args: []string{"sub"}, environment: map[string]string{"TOOL_DEEP": "true", "TOOL_PAUSE": "soon"}, want: "deep true"},
		"of what is unbound":  {args: []string{"manifests"}, environment: map[string]string{"TOOL_IMAGE": "own"}, want: program.Image("tool")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			command := tool(func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
			code := program.Run(t.Context(), command, append([]string{}, test.args...), &stdout, &stderr)
			if test.wrong != "" {
				require.Equal(t, program.ExitUsage, code)
				require.Contains(t, stderr.String(), test.wrong)
				return
			}
			require.Zero(t, code, stderr.String())
			require.Equal(t, test.want, stdout.String())
		})
	}
}

// TestAMistypedVariableIsNamed: its name is almost the variable of a setting. Other names may be secrets, and
// Kubernetes makes some for each Service.
func TestAMistypedVariableIsNamed(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	run := func() (int, string) {
		var stdout, stderr bytes.Buffer
		code := program.Run(t.Context(), tool(none), nil, &stdout, &stderr)
		return code, stderr.String()
	}
	for _, name := range []string{"TOOL_PAUSE_SERVICE_PORT", "TOOL_PAUSE_PORT_80_TCP_ADDR", "TOOL_PASSWORD", "TOOL_O", "OTHER_PAUS"} {
		t.Setenv(name, "1s")
	}
	t.Setenv("TOOL_PAUZE", "")
	code, text := run()
	require.Zero(t, code, text)
	for _, name := range []string{"TOOL_PAUS", "TOOL_PAUSES", "TOOL_PAUZE", "TOOL_REGIN"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "secret")
			code, text := run()
			require.Equal(t, program.ExitUsage, code)
			require.Regexp(t, "tool: "+name+": is the variable of no setting, must be TOOL_(PAUSE|REGION)\n", text)
			require.NotContains(t, text, "secret")
		})
	}
}

// TestAnErrorShowsNoPassword: a value that may hold one is hidden, and a long one is cut.
func TestAnErrorShowsNoPassword(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "nyc3": "nyc3", "https://u:sesame@host:x/": "(hidden)", "https://host/?token=sesame": "(hidden)", "redis://:sesame@h": "(hidden)",
		strings.Repeat("a", 201): strings.Repeat("a", 200) + "...",
	} {
		require.Equal(t, want, program.Shown(value), value)
	}
}

// TestAnErrorNamesWhatWasUsed has a flag that the program checks, with its value from the
// variable, and the other way round.
func TestAnErrorNamesWhatWasUsed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args        []string
		environment map[string]string
		want        string
	}{
		"flags":     {[]string{"--pause", "1s", "--region", "eu"}, nil, "--pause: is 1s; --region: is eu"},
		"variables": {nil, map[string]string{"TOOL_PAUSE": "1s", "TOOL_REGION": "eu"}, "TOOL_PAUSE: is 1s; TOOL_REGION: is eu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := tool(func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
			var stderr bytes.Buffer
			command.RunE = func(*cobra.Command, []string) error {
				return program.Usagef("--pause: is 1s; TOOL_REGION: is eu")
			}
			require.Equal(t, program.ExitUsage, program.Run(t.Context(), command, append([]string{}, test.args...), io.Discard, &stderr))
			require.Equal(t, "tool: "+test.want+"\n", stderr.String())
		})
	}
}

// tool is a program with each kind of setting.
func tool(environment func(string) (string, bool)) *cobra.Command {
	var pause time.Duration
	var own, other string
	var lookup func(string) string
	root := &cobra.Command{Use: "tool", Args: program.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		if own == "bad" {
			return program.Usagef("--own is bad")
		}
		if region := lookup("TOOL_REGION"); region == "no" {
			return &program.UsageError{Err: errors.New(`TOOL_REGION: is "no", must be a region`)}
		}
		_, err := fmt.Fprint(c.OutOrStdout(), pause, " ", own, " ", other, " ", lookup("TOOL_REGION"))
		return err
	}}
	root.Flags().DurationVar(&pause, "pause", time.Second, "a pause")
	root.Flags().StringVar(&own, "own", "", "has a variable of another name")
	program.Variable(root.Flags(), "own", "NAME_OF_THE_SEED")
	root.Flags().StringVar(&other, "other", "standard", "another")
	lookup = program.Settings(root.Flags(), []program.Setting{{Flag: "region", Variable: "TOOL_REGION", Usage: "a region"}})
	var deep bool
	sub := &cobra.Command{Use: "sub", RunE: func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(c.OutOrStdout(), "deep ", deep)
		return err
	}}
	sub.Flags().BoolVar(&deep, "deep", false, "a switch")
	var image string
	manifests := program.ManifestsCommand("print", printed{&image})
	program.ImageFlag(manifests.Flags(), &image, "tool")
	root.AddCommand(sub, manifests)
	program.Bind(root, "TOOL_", environment)
	return root
}

// TestWhatIsSecretHasNoFlag: a variable without a flag is read as it is.
func TestWhatIsSecretHasNoFlag(t *testing.T) {
	t.Setenv("TOOL_PASSWORD", "sesame")
	command := &cobra.Command{Use: "tool"}
	lookup := program.Settings(command.Flags(), []program.Setting{{Flag: "watch", Variable: "TOOL_WATCH", Usage: "a switch", Switch: true}})
	require.Equal(t, "sesame", lookup("TOOL_PASSWORD"))
	require.Nil(t, command.Flags().Lookup("password"))
	require.NoError(t, command.ParseFlags([]string{"--watch"}))
	require.Equal(t, "true", lookup("TOOL_WATCH"))
}

func TestAnImageIsAReference(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0f", 32)
	for text, valid := range map[string]bool{
		"nginx": true, "nginx:1.27": true, "shop/web_app--2:v1.0_x": true, "registry.example.com:5000/a/b__c@" + digest: true,
		"LOCALHOST/a:latest": true, "a:tag@" + digest: true, "a@sha512:" + strings.Repeat("0f", 64): true, "a:" + strings.Repeat("t", 128): true,
		"": false, "x@sha256:zz": false, "x@" + digest + "0": false, "x@" + digest[:70]: false, "x@md5:00": false, "x:": false, "x@": false,
		"x:1:2": false, "http://x": false, "Shop/Web": false, "a//b": false, "/a": false, "a/": false, "a b": false, "a:-": false, "a-": false, "a..b": false,
		"a:" + strings.Repeat("t", 129): false, strings.Repeat("a", 513): false, "registry.example.com:123456/a": false,
	} {
		var image string
		flags := pflag.NewFlagSet("tool", pflag.ContinueOnError)
		program.ImageFlag(flags, &image, "tool")
		err := flags.Set("image", text)
		require.Equal(t, valid, err == nil, "%q: %v", text, err)
		if valid {
			require.Equal(t, text, image)
		}
	}
}

func TestAnAddressHasAPort(t *testing.T) {
	t.Parallel()
	require.NoError(t, program.CheckAddresses(":8080", ""))
	require.NoError(t, program.CheckAddresses("[::1]:0", "127.0.0.1:65535"))
	err := program.CheckAddresses("nowhere", "127.0.0.1:99999")
	require.ErrorContains(t, err, `--health-probe-bind-address: is "nowhere", must be host:port or :port`)
	require.ErrorContains(t, err, `--metrics-bind-address: is "127.0.0.1:99999", must be host:port or :port`)
}

// printed are manifests that are only an image.
type printed struct{ image *string }

func (p printed) YAML() (string, error) { return *p.image, nil }

// TestTheVariablesOfServicesAreNoneOfTheProgram has a flag whose variable looks like one that
// Kubernetes sets for a Service.
func TestTheVariablesOfServicesAreNoneOfTheProgram(t *testing.T) {
	run := func() (int, string) {
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return nil }}
		root.Flags().String("pause-port", "", "a port")
		program.Bind(root, "TOOL_", func(string) (string, bool) { return "", false })
		var stdout, stderr bytes.Buffer
		code := program.Run(t.Context(), root, nil, &stdout, &stderr)
		return code, stderr.String()
	}
	t.Setenv("TOOL_PAUSED_PORT", "tcp://10.0.0.1:80")
	code, text := run()
	require.Zero(t, code, text)
	t.Setenv("TOOL_PAUSED_PORTS", "80")
	code, text = run()
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, text, "TOOL_PAUSED_PORTS: is the variable of no setting, must be TOOL_PAUSE_PORT")
}
