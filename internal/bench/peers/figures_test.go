package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// sent sends requests by the client of a config, to a server that answers each.
func sent(t *testing.T, config *rest.Config, requests ...string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range requests {
		method, path, _ := strings.Cut(line, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheRequestsOfAContenderAreThoseBesideListsAndWatches(t *testing.T) {
	t.Parallel()
	const maps = "/api/v1/namespaces/a/configmaps"
	s := (&world{cluster: &kubetest.Cluster{Config: &rest.Config{}}}).side("one")
	sent(t, s.config, "GET "+maps, "GET "+maps+"?watch=true", "GET "+maps+"/b", "PATCH "+maps+"/b", "DELETE "+maps+"/b")
	if requests, lists := s.requests(); requests != 3 || lists != 2 {
		t.Fatalf("%d requests and %d lists, want 3 and 2", requests, lists)
	}
	if each := s.perObject(2); each != 1.5 {
		t.Fatalf("%v requests for each, want 1.5", each)
	}
	if counted("one", 20, 20) != nil || counted("one", 19, 20) == nil {
		t.Fatal("fewer requests than objects were not counted, as many may be")
	}
}

func TestTheRequestsOfTheStageGrowthAreThoseBesideListsAndWatches(t *testing.T) {
	t.Parallel()
	const maps = "/api/v1/namespaces/a/configmaps"
	var c growthCount
	config := &rest.Config{}
	config.Wrap(c.wrap)
	sent(t, config, "GET "+maps+"?limit=500", "GET "+maps+"?watch=true")
	if err := c.silent("a pass"); err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"GET " + maps + "/b", "PATCH " + maps + "/b", "DELETE " + maps + "/b"} {
		sent(t, config, request)
		if c.silent("a pass") == nil {
			t.Fatalf("%s is not silent", request)
		}
	}
	sent(t, config, "DELETE "+maps+"/b", "DELETE "+maps+"/c", "GET "+maps+"?watch=true")
	if watches, other, deleted := c.reset(); watches != 1 || other != 2 || len(deleted) != 2 || !deleted[maps+"/c"] {
		t.Fatalf("%d watches, %d others, deleted %v", watches, other, deleted)
	}
}

// TestEachStageHasItsHardMarks: what must hold on any machine is measured by the stages that run, and no other is missed.
func TestEachStageHasItsHardMarks(t *testing.T) {
	t.Parallel()
	for stage, want := range map[string][]string{
		"rest": {
			"trueup.create_requests_per_object", "trueup.restart_lists_and_watches", "trueup.restart_requests",
			"trueup.sweep_allocations_per_object", "trueup.sweep_lists_and_watches", "trueup.sweep_requests",
		},
		"create": {"trueup.repair_requests_per_object"},
		"parts":  {"trueup.parts_allocs_per_child", "trueup.parts_requests_after_restart", "trueup.parts_requests_at_rest"},
		"embedded": {
			"trueup.embedded_requests_after_restart", "trueup.embedded_requests_at_rest", "trueup.embedded_requests_in_a_pass_for_each",
		},
		"memory": nil, "growth": nil,
	} {
		b := &bench{stages: []string{stage}}
		var hard []string
		for _, mark := range b.marks() {
			if mark.Hard {
				hard = append(hard, mark.Figure)
				if exactly := (strings.HasSuffix(mark.Figure, "_per_object") || mark.Limit > 0) && !strings.Contains(mark.Figure, "allocations"); exactly != mark.Exactly {
					t.Errorf("%s: exactly is %t: none is what is not counted", mark.Figure, mark.Exactly)
				}
			}
		}
		slices.Sort(hard)
		if !slices.Equal(hard, want) {
			t.Errorf("%s: hard are %q, must be %q", stage, hard, want)
		}
	}
}

func TestAProcessGivesItsFiguresOrAnError(t *testing.T) {
	t.Parallel()
	b := &bench{book: benchfigures.Book{Out: &bytes.Buffer{}}}
	const prints = "echo no figure; echo figure bytes 5 bytes; "
	if err := b.child(t.Context(), "held.", "sh", "-c", prints); err != nil {
		t.Fatal(err)
	}
	if f, ok := b.book.Get("held.bytes"); !ok || f.Value != 5 || f.Unit != "bytes" {
		t.Fatalf("%v", f)
	}
	if b.child(t.Context(), "other.", "sh", "-c", prints+"exit 3") == nil {
		t.Fatal("its status is an error")
	}
	if _, ok := b.book.Get("other.bytes"); ok {
		t.Fatal("a process that failed has no figures")
	}
}

// TestTheProcessorTimeIsThatOfOneOfACall is not parallel: the time is that of the process.
//
//nolint:paralleltest // see above
func TestTheProcessorTimeIsThatOfOneOfACall(t *testing.T) {
	var r growthRun
	rested, calls := 0, 0
	us, err := r.cpuOf(10, 30*time.Millisecond, func() error {
		calls++
		begun, err := cpuTime()
		for now := begun; err == nil && now-begun < 10*time.Millisecond; {
			now, err = cpuTime()
		}
		return err
	}, func() error {
		rested++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if us < 1000 || us > 2000 {
		t.Errorf("%v us for one of ten in 10 ms, want 1,000", us)
	}
	if rested != calls || calls < 2*growthRounds {
		t.Errorf("%d rests after %d calls", rested, calls)
	}
}

func TestMemoryIsToldForEachObject(t *testing.T) {
	t.Parallel()
	r := growthRun{book: benchfigures.Book{Out: &bytes.Buffer{}}}
	r.held(footprint{resident: 1000, heap: 100}, footprint{resident: 3000, heap: 200}, footprint{resident: 9000, heap: 500}, 100)
	for name, want := range map[string]float64{"memory_bytes": 80, "memory_view_bytes": 60, "memory_heap_bytes": 4} {
		if f, _ := r.book.Get(name); f.Value != want || f.Unit != "bytes" {
			t.Errorf("%s: %v %s, want %v bytes", name, f.Value, f.Unit, want)
		}
	}
}
