//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain has this binary start another program, as testrun does, if a test asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("TESTRUN_BEGIN") == "" {
		os.Exit(m.Run())
	}
	if err := begin(os.Args[1:], os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func TestWhatHasNoTimeIsLeftOutAndNamed(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	echo, err := exec.LookPath("echo")
	require.NoError(t, err)
	for _, test := range []struct {
		last time.Time
		want string
	}{{time.Now().Add(time.Hour), "it runs\n"}, {time.Now().Add(-time.Second), untimely + "\n"}} {
		cmd := exec.CommandContext(t.Context(), self, strconv.FormatInt(test.last.Unix(), 10), echo, "it runs")
		cmd.Env = append(os.Environ(), "TESTRUN_BEGIN=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, test.want, string(out))
	}
	require.Error(t, begin([]string{"soon", echo}, &bytes.Buffer{}))
	require.Error(t, begin([]string{"1"}, &bytes.Buffer{}))

	b, _ := collect(t, `
{"Action":"start","Package":"github.com/seed-9e1ffd66/trueup/apply"}
{"Action":"output","Package":"github.com/seed-9e1ffd66/trueup/apply","Output":"`+untimely+`\n"}
{"Action":"pass","Package":"github.com/seed-9e1ffd66/trueup/apply","Elapsed":0}
`)
	require.Equal(t, []string{"./apply"}, b.untimely)
	require.Empty(t, b.failed)

	var out bytes.Buffer
	r := &runner{out: &out, last: time.Now().Add(-time.Second)}
	r.test(t.Context(), step{name: "long", packages: []string{"./apply"}})
	r.command(t.Context(), "vet", "", nil, "false")
	require.False(t, r.failed())
	require.Equal(t, []string{"long", "vet"}, r.untimely)
	r.summary("rest")
	require.Contains(t, out.String(), "left out for want of time (TRUEUP_TEST_WITHIN=): long\n")
	require.False(t, (&runner{}).late("long"), "there is no limit")
	require.Empty(t, (&runner{}).within())
}

//nolint:paralleltest // it sets a variable
func TestTheTimeIsADuration(t *testing.T) {
	now := time.Now()
	t.Setenv(withinVariable, "60m")
	last, err := lastStart(now)
	require.NoError(t, err)
	require.Equal(t, now.Add(time.Hour), last)
	for _, text := range []string{"60", "-1m", "0s", "soon"} {
		t.Setenv(withinVariable, text)
		_, err := lastStart(now)
		require.ErrorContains(t, err, `TRUEUP_TEST_WITHIN is "`+text+`", must be a duration above zero, such as 60m`)
	}
	t.Setenv(withinVariable, "")
	last, err = lastStart(now)
	require.NoError(t, err)
	require.True(t, last.IsZero())
}
