package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func TestAStageOrAToolThatThereIsNotIsNamed(t *testing.T) {
	t.Parallel()
	require.NoError(t, known("-stages", "rest,drift", stageNames()))
	require.ErrorContains(
		t,
		known("-stages", "rest,drfit", stageNames()),
		`-stages: is "rest,drfit", must be of size,rest,drift,accidents,speed`,
	)
	require.ErrorContains(t, known("-stages", "", stageNames()), "must be of")
	require.NoError(t, known("-peers", "", append(toolNames(), "")))
	require.NoError(t, known("-peers", "helm,kapp", append(toolNames(), "")))
	require.ErrorContains(t, known("-peers", "heml", append(toolNames(), "")),
		"must be of trueup,kubectl_server_side,kubectl_prune,kubectl_applyset,helm,kapp")
}

func TestRequestsAreThoseBesideDiscoveryListsAndWatches(t *testing.T) {
	t.Parallel()
	sent, lists := sentOf([]kubetest.Request{
		{Verb: "get"},
		{Verb: "list", Resource: "configmaps"},
		{Verb: "watch", Resource: "configmaps"},
		{Verb: "get", Resource: "configmaps"},
		{Verb: "patch", Resource: "deployments"},
		{Verb: "create", Resource: "secrets"},
	})
	require.Equal(t, []int{3, 2}, []int{sent, lists})
}

func TestAFolderHasEachObjectOnce(t *testing.T) {
	t.Parallel()
	f := folder{t.TempDir()}
	require.NoError(t, f.write(objects(60)))
	var text strings.Builder
	for n := range 3 {
		part, err := os.ReadFile(f.file(n))
		require.NoError(t, err)
		text.Write(part)
	}
	for _, o := range objects(60) {
		require.Equal(t, 1, strings.Count(text.String(), "  name: "+o.name+"\n"), o.name)
	}
	require.Equal(t, 6, strings.Count(text.String(), "kind: Deployment\n"))
	require.NoError(t, f.cut(1))
	left, err := os.ReadFile(f.file(1))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(left), "\n---\n"), "of the third object a part is left")
	require.NotContains(t, string(left)[strings.LastIndex(string(left), "---"):], "address")
}

// TestADriftIsShownIfItsValueIsNamed has the plan of trueup and the text of another tool.
func TestADriftIsShownIfItsValueIsNamed(t *testing.T) {
	t.Parallel()
	field := drifts()[0]
	plan := func(name, live string, by ...string) answer {
		var writers []diff.Writer
		for _, manager := range by {
			writers = append(writers, diff.Writer{Manager: manager})
		}
		text, err := json.Marshal(diff.Plan{Changes: []diff.Change{{
			Kind: "ConfigMap", Name: name, Fields: []diff.Field{{Path: "data.level", Live: diff.Value(live), By: writers}},
		}}})
		require.NoError(t, err)
		return answer{out: string(text)}
	}
	for _, test := range []struct {
		tool         string
		is           answer
		shown, named bool
	}{
		{trueup, plan(field.object.name, `"drift-value"`, "edit-by-hand"), true, true},
		{trueup, plan(field.object.name, `"drift-value"`, "other"), true, false},
		{trueup, plan(field.object.name, `"info"`, "edit-by-hand"), false, false},
		{trueup, plan("app-other", `"drift-value"`, "edit-by-hand"), false, false},
		{"helm", answer{errs: "- level: drift-value"}, true, false},
		{"helm", answer{out: "conflict with edit-by-hand"}, false, true},
	} {
		shown, named, err := side{tool: tool{name: test.tool}}.shows(test.is, field)
		require.NoError(t, err)
		require.Equal(t, []bool{test.shown, test.named}, []bool{shown, named}, "%+v", test.is)
	}
	_, _, err := side{tool: tool{name: trueup}}.shows(answer{out: "error", errs: "no cluster", status: 1}, field)
	require.ErrorContains(t, err, "status 1")
}
