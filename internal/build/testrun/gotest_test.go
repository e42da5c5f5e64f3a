package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// collect reads what go test -json would print.
func collect(t *testing.T, events string) (*batch, []string) {
	t.Helper()
	var reported []string
	b := newBatch(
		3,
		func(line string) { reported = append(reported, line) },
		func(pkg, test string) string { return "run " + pkg + " " + test },
	)
	nothing := func() {}
	require.NoError(t, b.read(strings.NewReader(events), nothing, nothing))
	return b, reported
}

func TestAFailureIsItsTestAndWhatItPrinted(t *testing.T) {
	t.Parallel()
	b, reported := collect(t, `
{"Action":"start","Package":"github.com/seed-9e1ffd66/trueup/apply"}
{"Action":"run","Package":"github.com/seed-9e1ffd66/trueup/apply","Test":"TestA"}
{"Action":"output","Package":"github.com/seed-9e1ffd66/trueup/apply","Test":"TestA/b","Output":"    a_test.go:3: not so\n"}
{"Action":"fail","Package":"github.com/seed-9e1ffd66/trueup/apply","Test":"TestA/b","Elapsed":1}
{"Action":"fail","Package":"github.com/seed-9e1ffd66/trueup/apply","Test":"TestA","Elapsed":2}
{"Action":"pass","Package":"github.com/seed-9e1ffd66/trueup/apply","Test":"TestC","Elapsed":3}
{"Action":"fail","Package":"github.com/seed-9e1ffd66/trueup/apply","Elapsed":5}
`)
	require.Len(t, b.failed, 1, "the parent and the package fail for the subtest alone")
	require.Equal(t, "TestA/b", b.failed[0].test)
	require.Equal(t, []string{"    a_test.go:3: not so"}, b.failed[0].essence())
	require.Equal(t, "run github.com/seed-9e1ffd66/trueup/apply TestA/b", b.failed[0].command)
	require.Equal(t, []string{"FAIL   1 of 3    5.0 s  ./apply"}, reported)
	require.Empty(t, b.running)
	require.Equal(t, []string{"TestC", "TestA"}, []string{slowest(b.tests, 2)[0].test, slowest(b.tests, 2)[1].test})
}

// TestACrashOfTheRaceDetectorIsRunAgainOnce: a panic by the same signal is the program's.
func TestACrashOfTheRaceDetectorIsRunAgainOnce(t *testing.T) {
	t.Parallel()
	for events, again := range map[string]bool{
		`
{"Action":"output","Package":"p","Test":"TestA","Output":"SIGSEGV: segmentation violation\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"PC=0x41c729 m=0 sigcode=1 addr=0x0\n"}
{"Action":"fail","Package":"p","Elapsed":1}`: true,
		`
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: runtime error: invalid memory address or nil pointer dereference\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x174e1c2]\n"}
{"Action":"fail","Package":"p","Elapsed":1}`: false,
		`
{"Action":"output","Package":"p","Test":"TestA","Output":"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"exiting\" (0x0, 0x0) (tid=2)\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t5.293s\n"}
{"Action":"fail","Package":"p","Elapsed":1}`: true,
	} {
		b := newBatch(1, func(string) {}, func(string, string) string { return "" })
		b.once = true
		require.NoError(t, b.read(strings.NewReader(events), func() {}, func() {}))
		require.Equal(t, again, len(b.crashed) == 1)
		require.Equal(t, again, len(b.failed) == 0)
	}
}

func TestAPackageThatEndsWithoutATestToBlameFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ events, test, says string }{
		"a build": {`
{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: no\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`, "", "x.go:1: no"},
		"a panic": {`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: oh\n"}
{"Action":"fail","Package":"p","Elapsed":1}`, "TestA", "panic: oh"},
		"a crash": {`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"SIGSEGV: segmentation violation\n"}
{"Action":"fail","Package":"p","Elapsed":1}`, "TestA", "SIGSEGV: segmentation violation"},
		"a race": {`
{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"it goes on\n"}
{"Action":"fail","Package":"p","Elapsed":1}`, "TestA", "WARNING: DATA RACE"},
		"an exit": {`
{"Action":"output","Package":"p","Output":"exit status 3\n"}
{"Action":"fail","Package":"p","Elapsed":1}`, "", "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := collect(t, c.events)
			require.Len(t, b.failed, 1)
			require.Equal(t, c.test, b.failed[0].test)
			require.Equal(t, []string{c.says}, b.failed[0].essence())
		})
	}
}

func TestNoFailureHidesAnother(t *testing.T) {
	t.Parallel()
	b, _ := collect(t, `
{"Action":"fail","Package":"p","Test":"TestAB","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"fail","Package":"p","Elapsed":2}
{"Action":"output","Package":"q","Output":"exit status 3\n"}
{"Action":"fail","Package":"q","Elapsed":1}
`)
	var failed []string
	for _, f := range b.failed {
		failed = append(failed, f.pkg+" "+f.test)
	}
	require.Equal(t, []string{".p TestAB", ".p TestA", ".q "}, failed)
}

func TestASkipIsCountedByItsReason(t *testing.T) {
	t.Parallel()
	b, _ := collect(t, `
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: PostgreSQL is not installed: apt-get install it\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"q"}
go: downloading something
`)
	require.Equal(t, map[string]int{"PostgreSQL is not installed: apt-get install it": 1, "no reason given": 1}, b.skipped)
	require.Equal(t, 1, b.done)
	require.Empty(t, b.tests, "what was skipped took no time")
}

func TestTheEssenceIsTwentyLinesFromTheFirstThatBlames(t *testing.T) {
	t.Parallel()
	for _, first := range []string{
		"    Error Trace: a_test.go:3",
		"    a_test.go:3: waited 1m0s for: the grant is back (bound 30s, times 2.0 for a load of 0.1 on 2 cores)",
		"panic: oh",
	} {
		lines := []string{"=== RUN   TestA\n"}
		for range 30 {
			lines = append(lines, "noise that waited \n")
		}
		lines = append(lines, first+"\n")
		for range 30 {
			lines = append(lines, strings.Repeat("x", 300)+"\n")
		}
		got := result{output: lines}.essence()
		require.Len(t, got, 20)
		require.Equal(t, first, got[0])
		require.Len(t, got[1], 244)
	}
}

func TestLongTestsAreThoseThatAskShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a_test
import "testing"
func TestItself(t *testing.T) { if testing.Short() { t.Skip("long: so") } }
func TestByAFunction(t *testing.T) { t.Run("x", func(t *testing.T) { (&world{}).grow(t) }) }
func TestShort(t *testing.T) { other(t) }
func (w *world) grow(t *testing.T) { size() }
type world struct{}
func BenchmarkIt(b *testing.B) { size() }
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte(`package a
import "testing"
func size() int { if testing.Short() { return 1 }; return 100 }
func other(t *testing.T) {}
`), 0o600))
	found, err := longTests(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"TestByAFunction", "TestItself"}, found)
	n, err := onlyLong(dir)
	require.NoError(t, err)
	require.Zero(t, n, "some run")
}

func TestAPackageIsLeftOutWhenEachOfItsTestsBeginsWithASkip(t *testing.T) {
	t.Parallel()
	const skipped = "func TestA(t *testing.T) { if testing.Short() { t.Skip(\"long: so\") } }\n" +
		"func TestMain(m *testing.M) { m.Run() }\nfunc BenchmarkIt(b *testing.B) {}\nfunc helper() {}\n"
	for more, want := range map[string]int{
		"func TestB(d *testing.T) { if testing.Short() { d.Skip(\"long: so\") } }":               2,
		"func TestB(t *testing.T) { if testing.Short() { t.Log() } }":                            0,
		"func TestB(t *testing.T) { if !testing.Short() { t.Skip() } }":                          0,
		"func TestB(t *testing.T) { t.Parallel(); if testing.Short() { t.Skip(\"long: so\") } }": 0,
		"func TestB(t *testing.T) {}":                                                            0,
		"func FuzzB(f *testing.F) {}":                                                            0,
		"func ExampleB() {}":                                                                     0,
		"func (w *world) TestIt(n int) {}":                                                       1,
		"":                                                                                       1,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package a\n"+skipped), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte("package a_test\n"+more), 0o600))
		n, err := onlyLong(dir)
		require.NoError(t, err)
		require.Equal(t, want, n, more)
	}
}

func TestTheSummaryEndsWithWhatFailedAndHowToRunItAlone(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	r := &runner{out: &out, log: log, left: 4, machine: machine{missing: []string{"Java: no"}}}
	r.batches = []*batch{{
		skipped: map[string]int{"long: minutes": 3, "no Keycloak": 2},
		failed:  []result{{pkg: "./apply", test: "TestA", seconds: 1, output: []string{"not so\n"}, command: "go test -run TestA ./apply"}},
		tests:   []result{{pkg: "./apply", test: "TestB", seconds: 9}},
	}}
	r.summary("quick")
	text := out.String()
	require.Contains(t, text, "    9.0 s  ./apply TestB\n")
	require.Contains(t, text, "not run: 2: no Keycloak\n")
	require.Contains(t, text, "left to make test-all: 7\n")
	require.Contains(t, text, "missing: Java: no\n")
	require.Regexp(t, `figure test_quick_minutes \S+ min`, text)
	require.Contains(t, text, "--- FAIL: ./apply TestA (1.0 s)\nnot so\nalone: go test -run TestA ./apply\n\n1 failed; all that was printed: ")
	require.True(t, r.failed())

	require.ErrorIs(t, r.end("quick", nil), errFailed)
	require.ErrorIs(t, r.end("quick", errMachine), errMachine)
	r.batches[0].failed = nil
	require.NoError(t, r.end("quick", nil))
}

// TestARunOfGoTestIsReported runs go test on packages that fail, have no tests, or begin too late, and
// has it not run at all.
func TestARunOfGoTestIsReported(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/it\n\ngo 1.24\n",
		"a/a_test.go":  "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { t.Fail() }) }\n",
		"none/none.go": "package none\n",
		"dies/a_test.go": "package dies\n\nimport (\n\"os\"\n\"testing\"\n)\n\n" +
			"func TestA(*testing.T) { println(\"SIGSEGV: segmentation violation\\nPC=0x1 m=0\"); os.Exit(2) }\n",
		"late/a_test.go": "package late\n\nimport \"testing\"\n\nfunc TestMain(*testing.M) { println(\"" + untimely + "\") }\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	var out bytes.Buffer
	r := &runner{out: &out, log: log, root: root, variables: []string{"GOWORK=off", "GOFLAGS="}}
	r.test(t.Context(), step{name: "all", flags: []string{"-short", "-run=Test"}, packages: []string{"./a", "./none", "./late"}})
	require.Len(t, r.batches, 1)
	failed := r.batches[0].failed
	require.Len(t, failed, 1, out.String())
	require.Equal(t, "TestA/b", failed[0].test)
	require.Equal(t, "go test -short -v -run '^TestA$/^b$' example.com/it/a", failed[0].command)
	require.Equal(t, []string{"all .example.com/it/late"}, r.untimely)
	require.NotContains(t, out.String(), "it/none", "it has no tests")

	r.test(t.Context(), step{name: "wrong", env: []string{"GOFLAGS=-no-such-flag"}, packages: []string{"./a"}})
	require.Len(t, r.batches, 2)
	failed = r.batches[1].failed
	require.Len(t, failed, 1, "no event says so")
	require.Contains(t, failed[0].output[0], "no-such-flag")
	require.Equal(t, "GOFLAGS=-no-such-flag go test ./a", failed[0].command)

	if race, err := goEnv(t.Context(), "CGO_ENABLED"); err != nil || race != "1" {
		return // without a C compiler there is no race detector
	}
	r.test(t.Context(), step{name: "race", flags: []string{"-race"}, packages: []string{"./dies"}})
	require.Len(t, r.batches, 4)
	require.Empty(t, r.batches[3].failed, "the first time it may be the detector's fault")
	require.Len(t, r.batches[2].failed, 1, "the second time it is a failure")
	require.Equal(t, "TestA", r.batches[2].failed[0].test)
	require.Contains(t, out.String(), "== race, again after a crash of the race detector\n")
}

func TestLogsAreKeptForADay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"kept": 23 * time.Hour, "old": 25 * time.Hour} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Now().Add(-age)))
	}
	require.NoError(t, forget(dir))
	require.FileExists(t, filepath.Join(dir, "kept"))
	require.NoFileExists(t, filepath.Join(dir, "old"))
}

func TestAMachineThatCannotRunTheTestsSaysWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "go"))
	t.Setenv("XDG_CACHE_HOME", file)
	_, err := look(t.Context())
	require.ErrorIs(t, err, errMachine)
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, "set XDG_CACHE_HOME to a folder that is")
	require.ErrorContains(t, run(t.Context(), []string{"half"}, &bytes.Buffer{}), `what to run: "half"; use quick or rest`)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TRUEUP_KUBE_CACHE", file)
	_, err = look(t.Context())
	require.ErrorContains(t, err, "set TRUEUP_KUBE_CACHE to a folder that is")
	t.Setenv("TMPDIR", "/tmp/"+strings.Repeat("x", longestTemp))
	_, err = look(t.Context())
	require.ErrorContains(t, err, "TMPDIR has 65 characters")
	require.ErrorContains(t, err, "set it to a folder of at most 60")
}

//nolint:paralleltest // it sets variables
func TestTheRaceDetectorIsOffWithoutACompiler(t *testing.T) {
	for cgo, race := range map[string]bool{"1": true, "0": false} {
		t.Setenv("CGO_ENABLED", cgo)
		m, err := look(t.Context())
		require.NoError(t, err)
		require.Equal(t, race, m.race)
		require.Equal(t, race, !strings.Contains(strings.Join(m.missing, "\n"), "the race detector is off"))
	}
}

func TestARunEndsWithItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		orphaned(t.Context(), func() int {
			if time.Since(began) > 5*time.Second {
				return 1
			}
			return 42
		}, time.Second)
		require.Equal(t, 6*time.Second, time.Since(began))

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		orphaned(ctx, func() int { return 42 }, time.Hour)
		require.Equal(t, 6*time.Second, time.Since(began), "it ends with the run")
	})
}

func TestSlowPackagesBeginFirst(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		[]string{module + "/cmd/nodepool/operator", module + "/apply", module + "/apply/budget", module + "/zz"},
		slowestFirst([]string{module + "/apply", module + "/apply/budget", module + "/cmd/nodepool/operator", module + "/zz"}))
	for _, pkg := range slow {
		require.DirExists(t, filepath.Join("..", "..", "..", pkg))
	}
}

func TestWhatIsLeftOutOfTheRaceDetectorIsThere(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, dir := range []string{"apply", "reconcile/kube", "cmd/api/starbase", "cmd/shuttle/agent"} {
		functions, err := testFunctions(filepath.Join("..", "..", "..", dir))
		require.NoError(t, err)
		for _, f := range functions {
			found[f.Name.Name] = true
		}
	}
	for _, name := range sequential {
		require.True(t, found[name], name)
	}
}

// A module that no run compiles breaks with the next change of what it uses, as those that measure did.
func TestEachModuleIsCompiled(t *testing.T) {
	var all []string
	for _, pattern := range workspace() {
		all = append(all, path.Clean(strings.TrimSuffix(pattern, "...")))
	}
	all = append(all, separate...)
	all = append(all, comparisons...)
	all = append(all, "internal/kube", "internal/helm", "internal/versitygw") // the real parts, which the runs build
	root := filepath.Join("..", "..", "..")
	var modules []string
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			dir, _ := filepath.Rel(root, filepath.Dir(file))
			modules = append(modules, filepath.ToSlash(dir))
		}
		return err
	}))
	require.ElementsMatch(t, modules, all)
}
