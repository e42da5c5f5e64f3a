//go:build unix

package site_test

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const chromium = "/usr/bin/chromium"

// TestTheSiteCanBeRead builds the site and runs site.test.js, which follows its links, searches, and looks at each
// page in three widths, light and dark. With TRUEUP_SCREENSHOTS set to a folder, it leaves pictures there.
//
//nolint:paralleltest // a browser that waits for a processor shows nothing for a minute
func TestTheSiteCanBeRead(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a browser looks at each page in three widths, light and dark")
	}
	needModules(t)
	if _, err := os.Stat(chromium); err != nil {
		missing(t, "Debian's package chromium is not installed")
	}
	// Not a TempDir of the test: a browser may write to it to the very end.
	profile, err := os.MkdirTemp("", "site") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	t.Logf("%s", node(t, []string{
		"SITE_CHROMIUM=" + chromium, "SITE_PROFILE=" + profile, "SITE_OUT=" + t.TempDir(), "SITE_SCREENSHOTS=" + os.Getenv("TRUEUP_SCREENSHOTS"),
	}, "--test", "--test-reporter=spec", "site.test.js"))
}

// TestThePlotsAreUpToDate draws the plots from docs/plots/figures.txt and compares them with those beside it.
func TestThePlotsAreUpToDate(t *testing.T) {
	t.Parallel()
	needModules(t)
	drawn := t.TempDir()
	node(t, nil, "plots.js", filepath.Join(plots, "figures.txt"), drawn)
	made, err := filepath.Glob(filepath.Join(drawn, "*.svg"))
	require.NoError(t, err)
	committed, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	require.NoError(t, err)
	require.Len(t, made, len(committed), `docs/plots has other plots: run "make plots"`)
	for _, path := range made {
		is, err := os.ReadFile(path)
		require.NoError(t, err)
		was, err := os.ReadFile(filepath.Join(plots, filepath.Base(path)))
		require.NoError(t, err)
		require.Equal(t, string(is), string(was), `%s: run "make plots"`, filepath.Base(path))
	}
}

// TestAPlotIsDrawnFromAllItsFiguresOrNotAtAll: what a command has printed lacks those of the others.
func TestAPlotIsDrawnFromAllItsFiguresOrNotAtAll(t *testing.T) {
	t.Parallel()
	needModules(t)
	drawn, file := t.TempDir(), filepath.Join(t.TempDir(), "figures.txt")
	require.NoError(t, os.WriteFile(file, []byte("bench: it begins\nfigure pool_demand_ratio_karpenter_8 48 x\n"), 0o600))
	output := node(t, nil, "plots.js", file, drawn)
	require.Contains(t, string(output), "placement: left as it is: "+file+" lacks 1 figures, such as pool_demand_ratio_karpenter_40\n")
	made, err := os.ReadDir(drawn)
	require.NoError(t, err)
	require.Empty(t, made)
	require.NoError(t, os.WriteFile(file, []byte("figure pool_demand_ratio_karpenter_8 NaN x\n"), 0o600))
	output, err = exec.CommandContext(t.Context(), "node", "plots.js", file, drawn).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), `pool_demand_ratio_karpenter_8: is "NaN", must be a number`)
}

const plots = "../../docs/plots"

var number = regexp.MustCompile(`\d[\d,]*(\.\d+)?( (µs|ms|s)\b)?`)

// TestThePlotsShowTheFiguresOfThePage compares docs/plots/figures.txt with docs/figures.md: the figures below a line
// "# in:" are in the row that it names, in this order.
func TestThePlotsShowTheFiguresOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/figures.md")
	require.NoError(t, err)
	rows := strings.Split(regexp.MustCompile(`\n([^|\n-])`).ReplaceAllString(string(page), " $1"), "\n")
	data, err := os.ReadFile(filepath.Join(plots, "figures.txt"))
	require.NoError(t, err)
	command, row, rest, compared := "", "", []string(nil), 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "# command: "); ok {
			command = text
		}
		if text, ok := strings.CutPrefix(line, "# in: "); ok {
			require.NotEmpty(t, command, "%s: has no command above", text)
			row = text
			var found []string
			for _, candidate := range rows {
				if _, after, ok := strings.Cut(candidate, text); ok {
					found = append(found, after)
				}
			}
			require.Len(t, found, 1, "docs/figures.md must have one row with %q", text)
			rest = number.FindAllString(found[0], -1)
		}
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "figure" {
			require.Len(t, fields, 4, line)
			require.NotEmpty(t, row, "%s: is in no row", line)
			value, err := strconv.ParseFloat(fields[2], 64)
			require.NoError(t, err, line)
			for len(rest) > 0 && !same(rest[0], value, fields[3]) {
				rest = rest[1:]
			}
			require.NotEmpty(t, rest, "%s: is not in the row %q of docs/figures.md, or not in this order", line, row)
			rest = rest[1:]
			compared++
		}
	}
	require.Greater(t, compared, 30)
}

// same reports whether a text such as "2.3 ms" is the value, whose unit may be another one of time. A text without
// a unit of time has that of the value: the page gives one for several.
func same(text string, value float64, unit string) bool {
	seconds := map[string]float64{"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}
	text, of, _ := strings.Cut(strings.ReplaceAll(text, ",", ""), " ")
	read, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	if of != "" && seconds[unit] != 0 {
		read *= seconds[of] / seconds[unit]
	}
	return (of == "" || seconds[unit] != 0) && math.Abs(read-value) < 1e-6*(1+value)
}

// node runs a script here and returns what it prints.
func node(t *testing.T, variables []string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "node", args...)
	// Node and what it started go together.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 10 * time.Second
	command.Env = append(os.Environ(), variables...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return output
}

func needModules(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		missing(t, "node is not installed")
	}
	for _, name := range []string{"vitepress", "vega-lite", "playwright-core"} {
		if _, err := os.Stat(filepath.Join("node_modules", name)); err != nil {
			missing(t, "run npm ci in internal/site")
		}
	}
}

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("TRUEUP_REQUIRE_SERVICES") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

var (
	plotted = regexp.MustCompile(`(?s)!\[([^\]]*)\]\(plots/([a-z-]+)\.svg\)`)
	measure = regexp.MustCompile(`(?m)^figure (\S+) (\S+) (\S+)$`)
)

// TestTheTextsOfPlotsHaveTheFigures compares the numbers in the texts that stand for the plots with the figures.
func TestTheTextsOfPlotsHaveTheFigures(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(plots, "figures.txt"))
	require.NoError(t, err)
	figures := measure.FindAllStringSubmatch(string(data), -1)
	pictures, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	require.NoError(t, err)
	shown := map[string]bool{}
	for _, name := range []string{"figures.md", "compare.md"} {
		page, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		for _, plot := range plotted.FindAllStringSubmatch(string(page), -1) {
			shown[plot[2]+".svg"] = true
			numbers := number.FindAllString(strings.ReplaceAll(plot[1], "p50 and p99", ""), -1)
			require.Greater(t, len(numbers), 2, "%s: %s: the text must say what the plot shows", name, plot[2])
			for _, text := range numbers {
				require.True(t, slices.ContainsFunc(figures, func(figure []string) bool {
					value, err := strconv.ParseFloat(figure[2], 64)
					return err == nil && same(text, value, figure[3]) || strings.HasSuffix(figure[1], "_"+strings.ReplaceAll(text, ",", ""))
				}), "%s: the text of %s has %s, which is no figure of docs/plots/figures.txt", name, plot[2], text)
			}
		}
	}
	for _, picture := range pictures {
		require.True(t, shown[filepath.Base(picture)], "%s: is on no page", picture)
	}
}
