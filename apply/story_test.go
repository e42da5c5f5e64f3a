package apply_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/storytest"
)

var late = flag.Bool("late", false, "deliver to stories what their watches see 0.4 s late, to find those that depend on timing")

// TestStories runs testdata/*.txtar against a real API server. Each is a script
// with its objects: the first lines say the situation, a line is a command, and the
// lines after it that begin with ">" are its output. The commands:
//
//	options WORD...        of the program: see configure
//	apply FILE [OPTION...] apply the objects as a set: part=, ignore=KIND:PATH, handover=KIND:PATH>KIND, gate, createonly=ID, leaveout=ID
//	prune FILE [OPTION...] prune to the set: part=, off (no limit), foreign, empty (allowed)
//	plan FILE [OPTION...]  what both would do
//	delete ID...           delete by name
//	ready FILE             the readiness of the set
//	get ID                 what the live view shows
//	wake ID                wait until a pass is called for because of the object
//	gone ID                wait until the live view no longer shows it
//	cut                    break all watches
//	synced KIND            wait until the kind is known; failing: until its watch fails;
//	                       watched, unwatched: until it is known at all, or no more
//	converge FILE [OPTION...] apply at each call for a pass, until nothing is due
//	restart                start again without memory, as a new process
//	now COMMAND...         without waiting until what there is is known
//	kubectl ARG...         by an administrator; FILE after -f is one of the story
//	until TEXT kubectl ... repeat that until it prints the text
//
// Apply, prune, plan and delete print each object's outcome, and then the requests
// that were sent beside lists and watches. Before it the live view catches up with the
// server. NS is the story's namespace, GROUP an API
// group of its own.
func TestStories(t *testing.T) {
	t.Parallel()
	storytest.Each(t, "testdata/*.txtar", func(t *testing.T, told *storytest.Story) {
		s := &story{bench: serverBench(t), files: told.Files}
		s.group = strings.ReplaceAll(s.bench.ns, "-", "") + ".example.com"
		told.Play(t, func(line string) string { return s.output(s.run(t, line)) })
	})
}

// story is a running script.
type story struct {
	bench   *bench
	group   string
	files   map[string]string
	options []string
	program *agent
	hasty   bool // the next start is not waited for
}

// output makes what a command printed comparable.
func (s *story) output(text string) string {
	text = strings.ReplaceAll(text, s.bench.ns, "NS")
	text = strings.ReplaceAll(text, s.group, "GROUP")
	text = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`).ReplaceAllString(text, "UID")
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(`"[0-9a-f]{32}"`).ReplaceAllString(text, "HASH")
	// A kind is listed by a watch or by a list, and a quota counts late.
	text = strings.ReplaceAll(text, "cannot watch resource", "cannot list resource")
	text = regexp.MustCompile(`(used: \w+=)\d+`).ReplaceAllString(text, "${1}N")
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > maxLine { // the server's words beyond that differ between versions
			line = line[:maxLine] + "..."
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

const maxLine = 150

func (s *story) fill(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "NS", s.bench.ns), "GROUP", s.group)
}

func (s *story) run(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(s.fill(line))
	command, args := words[0], words[1:]
	switch command {
	case "options":
		s.options = args
		s.stop()
		return ""
	case "restart":
		s.stop()
		return ""
	case "kubectl":
		return s.kubectl(t, s.fill(strings.TrimPrefix(line, "kubectl ")))
	case "until":
		want, rest, _ := strings.Cut(strings.TrimPrefix(s.fill(line), "until "), " kubectl ")
		await.Eventually(t, rest, func() bool {
			out, _ := s.bench.cluster.Kubectl(t.Context(), splitWords(rest)...) // "auth can-i" fails where it says no
			return strings.TrimSpace(out) == want
		})
		return ""
	}
	hasty := command == "now"
	if hasty { // while the program starts
		s.hasty = true
		command, args = args[0], args[1:]
	}
	a := s.agent(t)
	if !hasty && slices.Contains([]string{"apply", "prune", "plan", "delete", "ready"}, command) {
		s.catchUp(t, a)
	}
	a.net.Reset()
	switch command {
	case "apply":
		report, err := a.Apply(t.Context(), s.set(t, args))
		return s.report(a, report, err)
	case "converge":
		return s.converge(t, a, s.set(t, args))
	case "prune":
		set := s.set(t, args)
		report, err := a.Prune(t.Context(), set, s.pruneOptions(args))
		return s.pruned(a, report, err)
	case "delete":
		var ids []apply.ID
		for _, arg := range args {
			id, err := apply.ParseID(arg)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		report, err := a.Delete(t.Context(), ids, apply.DeleteOptions{})
		return s.pruned(a, report, err)
	case "plan":
		plan, err := a.Plan(t.Context(), s.set(t, args), s.pruneOptions(args))
		text := plan.String()
		if err != nil {
			text += "\n" + err.Error()
		}
		return text + "\n" + s.requests(a)
	case "ready":
		found, err := a.Readiness(t.Context(), s.set(t, args))
		require.NoError(t, err)
		var lines []string
		for id, r := range found {
			lines = append(lines, fmt.Sprintf("%s is %s %s", id, r.Status, r.Message))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n") + "\n" + s.requests(a)
	default:
		return s.wait(t, a, command, args)
	}
}

// catchUp waits until the live view shows what the server has, so that what a command
// prints does not depend on how fast a watch is.
func (s *story) catchUp(t *testing.T, a *agent) {
	t.Helper()
	client, err := metadata.NewForConfig(s.bench.cluster.Config)
	require.NoError(t, err)
	var behind string
	await.Eventually(t, "the live view shows what the server has", func() bool {
		behind, err = a.Live.Behind(t.Context(), client)
		return err == nil && behind == ""
	}, func() string { return fmt.Sprint(behind, err) })
}

// converge applies whenever a pass is called for, until it succeeds.
func (s *story) converge(t *testing.T, a *agent, set *apply.Set) string {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		report, err := a.Apply(t.Context(), set)
		if err == nil {
			return ""
		}
		select {
		case <-a.woken:
		case <-time.After(500 * time.Millisecond): // as the pass at a regular interval
		case <-timeout:
			return "not converged: " + s.report(a, report, err)
		}
	}
}

// wait runs the commands that wait for the live view, or look at it.
func (s *story) wait(t *testing.T, a *agent, command string, args []string) string {
	t.Helper()
	switch command {
	case "cut":
		a.net.Cut()
	case "get":
		id, err := apply.ParseID(args[0])
		require.NoError(t, err)
		o, err := a.Live.Get(id)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("part %q, controller %q, deleting %v", o.Part, o.Controller, o.Deleting)
	case "wake":
		id, err := apply.ParseID(args[0])
		require.NoError(t, err)
		a.waitWoken(t, id.Kind, id.Name)
	case "gone":
		id, err := apply.ParseID(args[0])
		require.NoError(t, err)
		await.Eventually(t, "err != nil", func() bool {
			_, err := a.Live.Get(id)
			return err != nil // absent, or its kind is not watched any more
		})
	case "synced", "unsynced":
		kind := schema.ParseGroupKind(args[0])
		await.Eventually(t, `ok && err == nil == (command == "synced")`, func() bool {
			ok, err := a.Live.Synced(kind)
			return ok && err == nil == (command == "synced")
		})
	case "watched", "unwatched":
		kind := schema.ParseGroupKind(args[0])
		await.Eventually(t, `ok == (command == "watched")`, func() bool {
			ok, _ := a.Live.Synced(kind)
			return ok == (command == "watched")
		})
	case "failing":
		kind := schema.ParseGroupKind(args[0])
		await.Eventually(t, "err != nil", func() bool {
			_, err := a.Live.Synced(kind)
			return err != nil
		})
	default:
		t.Fatalf("unknown command %q", command)
	}
	return ""
}

func (s *story) kubectl(t *testing.T, line string) string {
	t.Helper()
	fails := strings.HasPrefix(line, "! ")
	words := splitWords(strings.TrimPrefix(line, "! "))
	for i, word := range words {
		if text, ok := s.files[word]; ok && i > 0 && words[i-1] == "-f" {
			path := filepath.Join(t.TempDir(), word)
			require.NoError(t, os.WriteFile(path, []byte(s.fill(text)), 0o600))
			words[i] = path
		}
	}
	if words[0] == "wait" { // for a controller that may be late: each new definition sets them back
		words = append(words, "--timeout=3m")
	}
	out, err := s.bench.cluster.Kubectl(t.Context(), words...)
	if fails {
		require.Error(t, err)
		return ""
	}
	require.NoError(t, err)
	if !slices.Contains(words, "-o") && !slices.Contains(words, "auth") {
		return "" // what it says of a change differs between versions
	}
	return out
}

// splitWords splits at spaces outside of single quotes.
func splitWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			if n := len(words) - 1; n >= 0 && strings.HasSuffix(words[n], "=") {
				words[n] += part
			} else {
				words = append(words, part)
			}
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

// set makes the set of a file.
func (s *story) set(t *testing.T, args []string) *apply.Set {
	t.Helper()
	text, ok := s.files[args[0]]
	require.True(t, ok, "no file %s", args[0])
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(s.fill(text), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		objects = append(objects, object)
	}
	options := apply.SetOptions{}
	var rules []diff.Rule
	policies := map[string]apply.ObjectPolicy{}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "part":
			options.Part = value
		case "ignore":
			kind, path, _ := strings.Cut(value, ":")
			rules = append(rules, diff.Rule{Kind: kind, Paths: []string{path}})
		case "handover": // to the object of another kind that has the same name
			what, by, _ := strings.Cut(value, ">")
			kind, path, _ := strings.Cut(what, ":")
			fields, err := diff.NewIgnore(diff.Rule{Kind: kind, Paths: []string{path}})
			require.NoError(t, err)
			to := schema.ParseGroupKind(by)
			options.Handover = append(options.Handover, apply.Handover{Fields: fields, By: func(id apply.ID) apply.ID {
				return apply.ID{Group: to.Group, Kind: to.Kind, Namespace: id.Namespace, Name: id.Name}
			}})
		case "gate":
			options.Gate = true
		case "createonly":
			policies[value] = apply.CreateOnly
		case "leaveout":
			policies[value] = apply.LeaveOut
		}
	}
	ignore, err := diff.NewIgnore(rules...)
	require.NoError(t, err)
	options.Ignore = ignore
	options.Policy = func(id apply.ID) apply.ObjectPolicy { return policies[id.String()] }
	set, err := apply.NewSet(s.owner(), objects, options)
	if set == nil {
		require.NoError(t, err)
	}
	return set
}

func (s *story) pruneOptions(args []string) apply.PruneOptions {
	options := apply.PruneOptions{Complete: true}
	for _, arg := range args[1:] {
		switch arg {
		case "off":
			options.Guard = noLimit()
		case "foreign":
			options.DeleteForeign = true
		case "empty":
			options.AllowEmpty = true
		}
	}
	return options
}

func (s *story) report(a *agent, report apply.Report, err error) string {
	lines := make([]string, 0, len(report.Results))
	for _, r := range report.Results {
		line := fmt.Sprintf("%s %s", r.Action, r.ID)
		if r.Err != nil {
			line += ": " + strings.ReplaceAll(r.Err.Error(), "\n", "; ")
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	if report.Unchanged > 0 {
		lines = append(lines, fmt.Sprintf("%d unchanged", report.Unchanged))
	}
	if err != nil && report.Err() == nil {
		lines = append(lines, "error: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return strings.Join(append(lines, s.requests(a)), "\n")
}

func (s *story) pruned(a *agent, report apply.PruneReport, err error) string {
	text := s.report(a, apply.Report{Results: report.Results}, nil)
	requests := text[strings.LastIndex(text, "requests:"):]
	lines := strings.Split(strings.TrimSuffix(strings.TrimSuffix(text, requests), "\n"), "\n")
	for _, id := range report.Held.IDs() {
		lines = append(lines, "Held "+id.String())
	}
	for _, id := range report.Unproven {
		lines = append(lines, "Unproven "+id.String())
	}
	for _, kind := range report.Unseen {
		lines = append(lines, "Unseen "+kind.String())
	}
	if report.Remaining > 0 {
		lines = append(lines, fmt.Sprintf("%d remaining", report.Remaining))
	}
	if err != nil && (apply.Report{Results: report.Results}).Err() == nil {
		lines = append(lines, "error: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return strings.Join(append(lines, requests), "\n")
}

// requests counts the requests other than lists and watches.
func (s *story) requests(a *agent) string {
	counts := map[string]int{}
	for _, r := range a.net.Requests() {
		if r.Verb != "list" && r.Verb != "watch" {
			counts[r.Verb]++
		}
	}
	parts := []string{}
	for _, verb := range []string{"get", "create", "update", "patch", "delete"} {
		if counts[verb] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[verb], verb))
		}
	}
	if len(parts) == 0 {
		return "requests: none"
	}
	return "requests: " + strings.Join(parts, ", ")
}

func (s *story) option(name string) (string, bool) {
	for _, option := range s.options {
		if key, value, _ := strings.Cut(option, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (s *story) owner() apply.Owner {
	owner := s.bench.owner
	owner.PartLabel, _ = s.option("parts")
	if manager, ok := s.option("manager"); ok {
		owner.Manager = manager
	}
	if manager, ok := s.option("supersede"); ok {
		owner.Supersedes = []string{manager}
	}
	if name, ok := s.option("applyset"); ok {
		owner.ApplySet = apply.ID{Kind: "ConfigMap", Namespace: s.bench.ns, Name: name}
	}
	return owner
}

// agent returns the program, started if need be.
func (s *story) agent(t *testing.T) *agent {
	t.Helper()
	if s.program != nil {
		return s.program
	}
	a := &agent{woken: make(chan apply.ID, 1000), synced: make(chan schema.GroupKind, 1000)}
	config := rest.CopyConfig(s.bench.config)
	config.QPS = -1
	if user, ok := s.option("user"); ok {
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
	}
	config.Wrap(a.net.Wrap)
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	objects, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	known := discovery{s.bench.cluster.Config}
	a.Applier = &apply.Applier{Objects: objects, Live: &apply.Live{
		Discovery: known,
		Client:    client, Mapper: &mapper{discovery: known}, Owner: s.owner(),
	}}
	s.configure(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Live.Start(ctx) }()
	if *late {
		go a.deliverLate(ctx)
	}
	a.stop = func() {
		cancel()
		require.NoError(t, <-done)
		done <- nil
	}
	t.Cleanup(a.stop)
	for _, kind := range a.Live.Kinds {
		await.Eventually(t, "s.hasty || ok || err != nil", func() bool {
			ok, err := a.Live.Synced(kind.GroupKind())
			return s.hasty || ok || err != nil // the story shows an unsynced kind
		})
	}
	s.hasty = false
	s.program = a
	return a
}

// deliverLate keeps back what the watches see.
func (a *agent) deliverLate(ctx context.Context) {
	for ctx.Err() == nil {
		a.net.Freeze()
		time.Sleep(400 * time.Millisecond)
		a.net.Thaw()
		time.Sleep(5 * time.Millisecond)
	}
}

// configure sets what the options of the story say.
func (s *story) configure(t *testing.T, a *agent) {
	t.Helper()
	a.Live.OnDrift = func(o apply.Observed) {
		a.drifts.Add(1)
		select {
		case a.woken <- o.ID:
		default:
		}
	}
	for _, option := range s.options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "adopt":
			a.Adoption = apply.AdoptForeign
		case "skip":
			a.Adoption = apply.SkipForeign
		case "report":
			a.Conflicts = apply.ReportConflicts
		case "recreate":
			a.Recreate = append(a.Recreate, schema.ParseGroupKind(value))
		case "upsert":
			a.Upsert = func(schema.GroupKind) bool { return true }
		case "kind":
			kind, err := (&mapper{discovery: discovery{s.bench.cluster.Config}}).RESTMapping(schema.ParseGroupKind(value))
			require.NoError(t, err)
			a.Live.Kinds = append(a.Live.Kinds, kind.GroupVersionKind)
		case "watch":
			group, version, _ := strings.Cut(value, "@")
			kind := schema.ParseGroupKind(group)
			a.Live.Kinds = append(a.Live.Kinds, kind.WithVersion(version))
		case "user", "parts", "manager", "supersede", "applyset":
		default:
			t.Fatalf("unknown option %q", option)
		}
	}
}

func (s *story) stop() {
	if s.program != nil {
		s.program.stop()
		s.program = nil
	}
}
