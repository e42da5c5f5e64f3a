package simtest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestTheCommonChecksFindWhatTheyAreFor lets a program send some requests in a world without
// faults, in which a user has made the Widget a.
func TestTheCommonChecksFindWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	const widgets = "widgets.example.com"
	size := func(o simtest.Object) string { return fmt.Sprint(o.Field("spec", "size")) }
	small := func(o simtest.Object) string { return map[bool]string{true: "small"}[size(o) == "1"] }
	own := func(o simtest.Object) bool { return o.Label("ours") == "yes" }
	create := func(name, size string) string { return "POST " + name + " " + size }
	type check = func(*simtest.World, simtest.Change) error
	notAnothers := func() check { return simtest.NotAnothers(widgets, own) }
	neverMore := func() check { return simtest.NeverMore(widgets, 1, small) }
	neverTwice := func() check { return simtest.NeverTwice(widgets, size) }
	neverBefore := func() check {
		return simtest.NeverBefore(widgets, widgets, func(other, o simtest.Object) bool { return o.Name() == "b" && size(other) == "2" })
	}
	none := func() check { return nil }
	for name, c := range map[string]struct {
		check     func() check
		converged func(*simtest.World) error
		requests  []string
		wrong     string
	}{
		"another's": {check: notAnothers, requests: []string{"DELETE a"}, wrong: "not an object of the program"},
		"its own": {
			check: notAnothers, requests: []string{create("b", "1"), "DELETE b"},
		},
		"another resource": {
			check: func() check { return simtest.NotAnothers("parts.example.com", own) }, requests: []string{"DELETE a"},
		},
		"a resource without its group": {
			check: func() check { return simtest.NotAnothers("parts", own) }, requests: []string{create("b", "1")},
			wrong: `the scenario asks for "parts", which is no resource of Scenario.Kinds; want one of ["widgets.example.com" "parts.example.com" `,
		},
		"a state of no resource": {
			check: none, converged: simtest.TrueAtRest("widget.example.com", "Ready"), wrong: `the scenario asks for "widget.example.com"`,
		},
		"as many beside one that goes": {
			check: neverMore, requests: []string{create("b", "1 held"), "DELETE b", create("d", "1")},
		},
		"too many": {
			check: neverMore, requests: []string{create("b", "1"), create("c", "2"), create("d", "1")},
			wrong: "there are 2 of small, and never may be more than 1",
		},
		"as many as may be": {
			check: neverMore, requests: []string{create("b", "1"), create("c", "2"), "DELETE b", create("d", "1")},
		},
		"twice": {
			check: neverTwice, requests: []string{create("b", "1"), "DELETE b", create("c", "1")},
			wrong: "1 is created as c, and was as b",
		},
		"again, since the owner of the first was gone": {
			check: neverTwice, requests: []string{create("b", "1 gone"), create("c", "1")},
		},
		"again, although the second's owner is gone": {
			check: neverTwice, requests: []string{create("b", "1"), create("c", "1 gone")},
		},
		"twice with one owner": {
			check: neverTwice, requests: []string{create("b", "1"), create("c", "2 owned"), create("d", "2 owned")},
			wrong: "2 is created as d, and was as c",
		},
		"once each": {check: neverTwice, requests: []string{create("b", "1"), create("c", "2")}},
		"before what needs it": {
			check: neverBefore, requests: []string{create("b", "1"), create("c", "2"), "DELETE b"}, wrong: "widgets.example.com c needs it",
		},
		"before what needs it is gone": {
			check: neverBefore, requests: []string{create("b", "1"), create("c", "2 held"), "DELETE c", "DELETE b"},
			wrong: "widgets.example.com c needs it",
		},
		"after what needs it": {
			check: neverBefore, requests: []string{create("b", "1"), create("c", "2"), create("d", "1"), "DELETE d", "DELETE c", "DELETE b"},
		},
		"the second of two": {
			check:    func() check { return simtest.Checks(neverTwice(), notAnothers()) },
			requests: []string{create("b", "1"), "DELETE a"}, wrong: "not an object of the program",
		},
		"not ready": {check: none, converged: simtest.TrueAtRest(widgets, "Ready"), wrong: "a is not Ready"},
		"ready before": {
			check: none, converged: simtest.TrueAtRest(widgets, "Ready"),
			requests: []string{"PUT a True 7"}, wrong: "of an old generation",
		},
		"unready": {
			check: none, converged: simtest.TrueAtRest(widgets, "Ready"),
			requests: []string{"PUT a False 1"}, wrong: "a is not Ready",
		},
		"ready but for one that goes": {
			check: none, converged: simtest.TrueAtRest(widgets, "Ready"),
			requests: []string{create("b", "1 held"), "DELETE b", "PUT a True 1"},
		},
		"ready": {check: none, converged: simtest.TrueAtRest(widgets, "Ready"), requests: []string{"PUT a True 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := simtest.Simulate(t, func() simtest.Scenario {
				return simtest.Scenario{
					Kinds: []simtest.Kind{
						{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true},
						{Group: "example.com", Version: "v1", Resource: "parts", Kind: "Part"},
					},
					Disturbances: []applytest.Disturbance{}, Edits: 1, Rest: 1, ReadOnly: true,
					Edit: func(w *simtest.World) {
						require.NoError(t, w.Create(simtest.Object{
							"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": "a"},
						}))
					},
					Program: func(ctx context.Context, net http.RoundTripper) error { return sends(ctx, net, c.requests) },
					Check:   c.check(), Converged: c.converged, State: func(*simtest.World) string { return "" },
				}
			}, 1)
			if c.wrong == "" {
				require.Empty(t, r.Wrong, r.Trace)
				return
			}
			require.NotEmpty(t, r.Wrong, r.Trace)
			require.Contains(t, r.Wrong[0], c.wrong)
		})
	}
}

// sends is a program that sends each request until it is done, and waits for its end.
func sends(ctx context.Context, net http.RoundTripper, requests []string) error {
	const (
		path  = "http://simtest/apis/example.com/v1/namespaces/shop/widgets"
		owner = `[{"apiVersion":%q,"kind":%q,"name":"a","uid":"of-nothing"}]`
	)
	owners := map[string]string{
		"": "[]", "held": "[]",
		// Of a kind that the server has, and of one that it does not know, which may be there.
		"gone": fmt.Sprintf(owner, "example.com/v1", "Widget"), "owned": fmt.Sprintf(owner, "elsewhere.example.com/v1", "Thing"),
	}
	for _, each := range requests {
		words := append(strings.Fields(each), "", "")
		url, body := path+"/"+words[1], ""
		switch words[0] {
		case http.MethodPost:
			url, body = path, fmt.Sprintf(
				`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":{"ours":"yes"},"finalizers":%s,"ownerReferences":%s},"spec":{"size":%s}}`,
				words[1],
				map[bool]string{true: `["example.com/held"]`, false: "[]"}[words[3] == "held"],
				owners[words[3]],
				words[2],
			)
		case http.MethodPut:
			words[0], url = http.MethodPatch, url+"/status"
			body = fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"observedGeneration":%s}]}}`, words[2], words[3])
		}
		for done := false; !done; {
			request, err := http.NewRequestWithContext(ctx, words[0], url, strings.NewReader(body))
			if err != nil {
				return err
			}
			form := map[bool]string{true: "application/merge-patch+json", false: "application/json"}
			request.Header.Set("Content-Type", form[words[0] == http.MethodPatch])
			answer, err := net.RoundTrip(request)
			if err != nil {
				return err
			}
			done = answer.StatusCode != http.StatusNotFound // the user has not made it yet
			if err := answer.Body.Close(); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return nil
}
