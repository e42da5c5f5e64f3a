package talktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Kinds are the kinds that a conversation is about.
func Kinds() []simtest.Kind {
	all := []simtest.Kind{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
	}
	for _, k := range kinds() {
		group, version, found := strings.Cut(k.version, "/")
		if !found {
			group, version = "", k.version
		}
		all = append(all, simtest.Kind{Group: group, Version: version, Resource: k.resource, Kind: k.kind, Status: k.status})
	}
	return all
}

// Admit sets what the schemas of a Pod and of a PodDisruptionBudget set in the status.
func Admit(a *simtest.Admission) error {
	if a.Verb == "create" && a.Object["kind"] == "PodDisruptionBudget" {
		a.Object["status"] = map[string]any{"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
	}
	return nil
}

// Party is several conversations at once, each in namespaces of its own.
type Party struct {
	Real  Side
	Seed  uint64
	Steps int
	// Name begins the names of the namespaces. They must not exist. Default talk.
	Name string
	// Server makes the other server of each conversation, which has Kinds and Admit.
	Server    func() http.RoundTripper
	Machinery bool
	Known     []Known
}

// Outcome is what all conversations had in common.
type Outcome struct {
	Steps       int
	Differences []string
	Met         map[string]int
	Codes       map[int]int
	Time        time.Duration
}

const guests = 6

// Hold holds all conversations, and fails the test for each difference.
func (p Party) Hold(t *testing.T) Outcome {
	t.Helper()
	for _, name := range []string{"widgets", "gadgets"} {
		p.define(t, name)
	}
	o, start := Outcome{Met: map[string]int{}, Codes: map[int]int{}}, time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range guests {
		all.Go(func() {
			c := &Conversation{
				Real:      p.Real,
				Simulated: Side{Client: &http.Client{Transport: p.Server()}, Host: "http://simtest"},
				Seed:      p.Seed*1000 + uint64(i),
				Steps:     (p.Steps + i) / guests,
				Namespace: fmt.Sprint(cmp.Or(p.Name, "talk"), "-", i),
				Machinery: p.Machinery,
				Known:     p.Known,
				Script:    i == 0,
			}
			for _, side := range []Side{c.Real, c.Simulated} {
				for _, namespace := range []string{c.Namespace, c.Namespace + "-b"} {
					furnish(t, side, namespace)
				}
			}
			r, err := c.Hold(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			o.Steps += r.Steps
			if r.Difference != "" {
				o.Differences = append(o.Differences, r.Difference)
				t.Error(r.Difference)
			}
			for reason, n := range r.Met {
				o.Met[reason] += n
			}
			for code, n := range r.Codes {
				o.Codes[code] += n
			}
		})
	}
	all.Wait()
	o.Time = time.Since(start)
	return o
}

// furnish makes a namespace and the service account that pods need there.
func furnish(t *testing.T, side Side, namespace string) {
	t.Helper()
	code := post(t, side, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
	if code != http.StatusCreated {
		t.Errorf("namespace %s: %d", namespace, code)
	}
	// The simulated server has no service accounts.
	post(
		t,
		side,
		"/api/v1/namespaces/"+namespace+"/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`,
	)
}

func post(t *testing.T, side Side, path, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, side.Host+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", jsonForm)
	answer, err := side.Client.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body) // for the next request
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	return answer.StatusCode
}

// define makes a definition in the real server, and waits until it is served.
func (p Party) define(t *testing.T, name string) {
	t.Helper()
	var k *kind
	for _, each := range kinds() {
		if each.resource == name {
			k = each
		}
	}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	}
	if k.status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name + ".example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": name, "singular": strings.ToLower(k.kind), "kind": k.kind},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if code := post(
		t,
		p.Real,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		string(bytes.TrimSpace(body)),
	); code != http.StatusCreated &&
		code != http.StatusConflict {
		t.Fatalf("the definition of %s: %d", name, code)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	c := &Conversation{sides: [2]Side{p.Real, p.Real}}
	for {
		a, err := c.send(ctx, 0, Request{Method: http.MethodGet, Path: k.root + "/" + k.resource})
		if err == nil && a.Code == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the definition of %s is not served: %v %v", name, a, err)
		}
	}
}
