package show_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/trueup/internal/show"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func plan() diff.Plan {
	alice := []diff.Writer{{Manager: "alice", Operation: "Update", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	return diff.Plan{Changes: []diff.Change{
		{Action: diff.Create, APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"},
		{Action: diff.Update, APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "b", Note: "a note", Fields: []diff.Field{
			{Path: ".data.key", Difference: diff.Changed, Live: `"theirs"`, Desired: `"` + diff.Value(strings.Repeat("x", 90)) + `"`, By: alice},
			{Path: ".data.taken", Difference: diff.Taken, Live: `"t"`, By: alice},
			{Path: ".data.left", Difference: diff.Released, Live: `"l"`},
		}},
		{Action: diff.Keep, APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "c", Fields: []diff.Field{
			{Path: `.spec.containers[name="mesh"]`, Difference: diff.Added, By: alice},
		}},
	}}
}

func TestAPlanReadsLikeADiff(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p, err := show.New(&out, &errs, "", false)
	require.NoError(t, err)
	p.Plan(plan())
	p.Progress("nobody sees this: %s", "it is no terminal")
	require.Equal(t, `+ create ConfigMap/shop/a
~ update ConfigMap/shop/b (a note)
    .data.key: "theirs" -> "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…  by "alice" 2026-01-02T03:04:05Z
    .data.taken: "t", owned by another program  by "alice" 2026-01-02T03:04:05Z
    .data.left: "l", left to others
= keep Deployment.apps/shop/c
    .spec.containers[name="mesh"]: added by another program, stays  by "alice" 2026-01-02T03:04:05Z
`, out.String())
	require.Empty(t, errs.String())

	out.Reset()
	p, err = show.New(&out, &errs, "", true)
	require.NoError(t, err)
	p.Plan(plan())
	require.Contains(t, out.String(), "      live:   \"theirs\"\n      wanted: \""+strings.Repeat("x", 90)+"\"\n", "wide values are whole")
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": "{\n  \"count\": 1\n}\n", "yaml": "count: 1\n", "name": "one\n"} {
		var out, errs bytes.Buffer
		p, err := show.New(&out, &errs, format, false)
		require.NoError(t, err)
		p.Printf("for people\n")
		p.Table([]string{"for people"}, nil)
		require.True(t, p.Value(map[string]int{"count": 1}, []string{"one"}))
		require.Equal(t, want, out.String())
	}
	_, err := show.New(nil, nil, "xml", false)
	require.EqualError(t, err, `--output: is "xml", must be json, yaml or name`)
}

func TestErrorsHaveALineEach(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p, err := show.New(&out, &errs, "", false)
	require.NoError(t, err)
	p.Error(nil)
	p.Error(errors.Join(errors.New("one\nin two lines"), errors.Join(errors.New("two"), fmt.Errorf("three: %w", errors.New("why")))))
	require.Equal(t, "one in two lines\ntwo\nthree: why\n", errs.String())
	require.False(t, p.Ask(strings.NewReader("y\n"), "Delete?"), "without a terminal the answer is no")
}

func TestATableHasColumns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, err := show.New(&out, &out, "", false)
	require.NoError(t, err)
	p.Table([]string{"NAME", "N"}, [][]string{{"a", "1"}, {"longer", "2"}})
	require.Equal(t, "NAME    N\na       1\nlonger  2\n", out.String())
	now := time.Unix(1_000_000, 0)
	for age, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 2 * time.Hour: "2h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		require.Equal(t, want, show.Since(now, now.Add(-age)))
	}
	require.Equal(t, "-", show.Since(now, time.Time{}))
	require.Equal(t, "0 objects, 1 object, 2 objects", show.Objects(0)+", "+show.Objects(1)+", "+show.Objects(2))
}
