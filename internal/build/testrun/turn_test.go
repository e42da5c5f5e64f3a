package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTurnsTogetherAreEverything(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d", "e", "f", "g"}
	require.Equal(t, all, (&runner{}).ofTurn("letters", all), "without turns")
	var together []string
	for number := 1; number <= 3; number++ {
		r := &runner{turn: turn{number, 3}}
		together = append(together, r.ofTurn("letters", all)...)
		require.Equal(t, []string{[]string{"4 of 7 letters", "5 of 7 letters", "5 of 7 letters"}[number-1]}, r.turned)
	}
	slices.Sort(together)
	require.Equal(t, all, together)

	one := &runner{turn: turn{2, 2}}
	require.Empty(t, one.ofTurn("letters", []string{"a"}))
	var out bytes.Buffer
	one.out = &out
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	one.log = log
	one.summary("rest")
	require.Contains(t, out.String(), "left to other turns (TRUEUP_TEST_TURN=2/2): 1 of 1 letters\n")
}

// TestALongTestRunsInOneTurn has a name in two packages, and tests that belong to other steps.
func TestALongTestRunsInOneTurn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const long = "(t *testing.T) { if testing.Short() { t.Skip(\"long: so\") } }\n"
	for name, text := range map[string]string{
		"a/a_test.go": "package a\nfunc TestOne" + long + "func TestTwo" + long + "func TestLatency" + long,
		"b/b_test.go": "package b\nfunc TestTwo" + long,
		"c/c_test.go": "package c\nfunc TestItInASimulatedWorld" + long,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	packages := []string{module + "/a", module + "/b", module + "/c"}
	for _, test := range []struct {
		turn        turn
		names, with []string
	}{
		{turn{}, []string{"TestOne", "TestTwo"}, packages[:2]},
		{turn{1, 2}, []string{"TestOne"}, packages[:1]},
		{turn{2, 2}, []string{"TestTwo"}, packages[:2]},
	} {
		names, with, err := (&runner{root: root, turn: test.turn}).long(packages)
		require.NoError(t, err)
		require.Equal(t, test.names, names, test.turn)
		require.Equal(t, test.with, with, test.turn)
	}
}

func TestTheRaceDetectorHasItsPackagesByTurns(t *testing.T) {
	t.Parallel()
	packages := []string{module + "/apply", module + "/cloud/aws", module + "/diff", module + "/statesync", module + "/snapshot"}
	r := &runner{machine: machine{race: true}}
	require.Equal(t, []string{packages[0], packages[3], packages[4]}, r.underRace(packages))
	r.turn = turn{2, 3}
	require.Equal(t, packages[3:4], r.underRace(packages))
	require.Equal(t, []string{"2 of 3 packages under the race detector"}, r.turned)
	require.Empty(t, (&runner{}).underRace(packages))
}

//nolint:paralleltest // it sets a variable
func TestATurnIsAPartOfSeveral(t *testing.T) {
	t.Setenv(turnVariable, "")
	none, err := thisTurn()
	require.NoError(t, err)
	require.Equal(t, turn{}, none)
	t.Setenv(turnVariable, "2/3")
	second, err := thisTurn()
	require.NoError(t, err)
	require.Equal(t, turn{2, 3}, second)
	for _, text := range []string{"2", "0/3", "4/3", "-1/3", "a/3", "2/", "/", "2/3/4"} {
		t.Setenv(turnVariable, text)
		_, err := thisTurn()
		require.ErrorContains(t, err, `TRUEUP_TEST_TURN is "`+text+`", must be the number of a part and how many there are, such as 2/3`)
	}
}

func TestWhatIsUndisturbedIsThereAndApart(t *testing.T) {
	t.Parallel()
	alone, others := apart([]string{module + "/apply", module + undisturbed[0][1:], module + "/diff"})
	require.Equal(t, []string{module + undisturbed[0][1:]}, alone)
	require.Equal(t, []string{module + "/apply", module + "/diff"}, others)
	for _, pkg := range undisturbed {
		require.DirExists(t, filepath.Join("..", "..", "..", pkg))
		require.NotContains(t, slow, pkg, "they are no more among the others")
	}
}
