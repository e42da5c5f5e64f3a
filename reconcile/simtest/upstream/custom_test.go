package upstream_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// line is a request about parts, and what a server answers.
type line struct {
	what, method, path, body string

	code int
	text string // in the answer
}

const (
	parts   = "/apis/example.com/v1/namespaces/shop/parts"
	post    = http.MethodPost
	merge   = "merge-patch+json"
	applied = "apply-patch+yaml"
	listed  = http.MethodGet
	put     = http.MethodPut
)

// part is a body with the fields of a spec.
func part(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

// conversation is what a server without schemas would answer in another way.
func conversation() []line {
	status := func(text string) string { return `{"status":{` + text + `}}` }
	condition := func(name, is string) string {
		return fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":"p"},"status":{"conditions":[{"type":%q,"status":%q}]}}`, name, is,
		)
	}
	// version has the one of the object before.
	version := func(body string) string {
		return strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"{version}",`, 1)
	}
	return []line{
		{"defaults", post, "", part("a", `"color":"red"`), 201, `"spec":{"color":"red","paint":{"coats":2},"replicas":3}`},
		{
			"unknown fields are pruned", post, "", part("b", `"color":"red","no":1,"paint":{"no":{}},"free":{"yes":1}`),
			201, `"spec":{"color":"red","free":{"yes":1},"paint":{"coats":2},"replicas":3}`,
		},
		{
			"strict", post, "?fieldValidation=Strict", part("c", `"color":"red","no":1,"paint":{"no":{}}`),
			400,
			`Part in version \"v1\" cannot be handled as a Part: strict decoding error: unknown field \"spec.no\", unknown field \"spec.paint.no\"`,
		},
		{
			"twice", post, "?fieldValidation=Strict", part("c", `"color":"red","color":"blue"`),
			400, `strict decoding error: duplicate field \"spec.color\"`,
		},
		{
			"unknown metadata", post, "?fieldValidation=Strict", strings.Replace(part("c", `"color":"red"`), `"name"`, `"no":1,"name"`, 1),
			400, `strict decoding error: unknown field \"metadata.no\"`,
		},
		{
			"labels that are numbers", post, "", strings.Replace(part("c", `"color":"red"`), `"name"`, `"labels":{"a":1},"name"`, 1),
			400, `cannot be handled as a Part: `,
		},
		{
			"strict patch", merge, "/a?fieldValidation=Strict", `{"spec":{"no":1}}`,
			422, `strict decoding error: unknown field \"spec.no\"`,
		},
		{
			"a patch is pruned", merge, "/a", `{"spec":{"no":1,"limit":5}}`,
			200, `"spec":{"color":"red","limit":5,"paint":{"coats":2},"replicas":3}`,
		},
		{
			"required", post, "", part("c", ``),
			422, `"causes":[{"field":"spec.color","message":"Required value","reason":"FieldValueRequired"}`,
		},
		{
			"required, and so no rules", post, "", part("c", ``),
			422, `some validation rules were not checked because the object was invalid`,
		},
		{"no spec", post, "", `{"apiVersion":"example.com/v1","kind":"Part","metadata":{"name":"c"}}`, 422, `spec: Required value`},
		{
			"enum", post, "", part("c", `"color":"green"`),
			422, `Part.example.com \"c\" is invalid: [spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\", `,
		},
		{"type", post, "", part("c", `"color":7`), 422, `"reason":"FieldValueTypeInvalid"`},
		{"a fraction", post, "", part("c", `"color":"red","replicas":1.5`), 422, `must be of type integer`},
		{"minimum", post, "", part("c", `"color":"red","replicas":0`), 422, `should be greater than or equal to 1`},
		{"maximum", merge, "/a", `{"spec":{"replicas":10}}`, 422, `should be less than or equal to 9`},
		{"too long", post, "", part("c", `"color":"red","zone":"far-far-away"`), 422, `"reason":"FieldValueTooLong"`},
		{"a rule", post, "", part("c", `"color":"red","limit":1,"replicas":2`), 422, `: at most limit replicas`},
		{"a rule with a default", post, "", part("c", `"color":"red","limit":1`), 422, `at most limit replicas`},
		{
			"a map with a key twice", post, "", part("c", `"color":"red","items":[{"name":"x"},{"name":"x"}]`),
			422, `FieldValueDuplicate`,
		},
		{
			"a set with an element twice", post, "", part("c", `"color":"red","tags":["x","x"]`),
			422, `spec.tags[1]: Duplicate value`,
		},
		{"int or string", post, "", part("i", `"color":"red","size":"5%"`), 201, `"size":"5%"`},
		{"neither", post, "", part("c", `"color":"red","size":true`), 422, `spec.size`},
		{
			"null", post, "", part("n", `"color":"red","zone":null,"replicas":null`),
			201, `"spec":{"color":"red","paint":{"coats":2},"replicas":3}`,
		},
		{"an object in an object", post, "", part("c", `"color":"red","template":{"apiVersion":"v1"}`), 422, `spec.template.kind`},
		{"a value is set", merge, "/a", `{"spec":{"zone":"east"}}`, 200, `"zone":"east"`},
		{"a value stays", merge, "/a", `{"spec":{"zone":"west"}}`, 422, `spec.zone: Invalid value: \"west\": zone is immutable`},
		{"a default comes back", merge, "/a", `{"spec":{"replicas":null}}`, 200, `"replicas":3`},
		{"a required field stays", merge, "/a", `{"spec":{"color":null}}`, 422, `spec.color: Required value`},
		{
			"a status is not created", post, "", strings.TrimSuffix(part("s", `"color":"red"`), "}") + `,"status":{"phase":"Wrong"}}`,
			201, `"status":{"steps":1}`,
		},
		{
			"status", merge, "/a/status", status(`"phase":"New","replicas":2,"no":1,"selector":"a=b"`),
			200, `"status":{"phase":"New","replicas":2,"selector":"a=b","steps":1}`,
		},
		{"a wrong status", merge, "/a/status", status(`"phase":"Old"`), 422, `status.phase: Unsupported value: \"Old\"`},
		{"a rule about the status before", merge, "/a/status", status(`"phase":null`), 422, `a phase stays`},
		{"scale", listed, "/a/scale", "", 200, `"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}`},
		{"a scale that is too much", merge, "/a/scale", `{"spec":{"replicas":6}}`, 422, `at most limit replicas`},
		{"a new scale", merge, "/a/scale", `{"spec":{"replicas":4}}`, 200, `"spec":{"replicas":4}`},
		{"it is in the object", listed, "/a", "", 200, `"replicas":4,"zone":"east"`},
		{"red ones", listed, "?fieldSelector=spec.color%3Dred", "", 200, `"name":"b"`},
		{"blue ones", listed, "?fieldSelector=spec.color%3Dblue", "", 200, `"items":[]`},
		{"by another field", listed, "?fieldSelector=spec.zone%3Deast", "", 400, `field label not supported: spec.zone`},
		{
			"one applies", applied, "/p?fieldManager=x", part("p", `"color":"red","items":[{"name":"one"}],"tags":["t"]`),
			201, `"items":[{"name":"one","value":"none"}]`,
		},
		{
			"another one applies", applied, "/p?fieldManager=y", part("p", `"items":[{"name":"two","value":"2"}],"tags":["u"]`),
			200, `"items":[{"name":"one","value":"none"},{"name":"two","value":"2"}]`,
		},
		{
			"they conflict", applied, "/p?fieldManager=y", part("p", `"color":"blue","items":[{"name":"two"}]`),
			409, `conflict with \"x\": .spec.color`,
		},
		{
			"the first one gives up", applied, "/p?fieldManager=x", part("p", `"color":"red"`),
			200, `"items":[{"name":"two","value":"2"}],"paint":{"coats":2},"replicas":3,"tags":["u"]`,
		},
		{
			"one applies a condition", applied, "/p/status?fieldManager=x", condition("One", "True"),
			200, `"conditions":[{"status":"True","type":"One"}]`,
		},
		{
			"another one applies another", applied, "/p/status?fieldManager=y", condition("Two", "False"),
			200, `"conditions":[{"status":"True","type":"One"},{"status":"False","type":"Two"}]`,
		},
		{
			"a wrong condition", applied, "/p/status?fieldManager=y", condition("Two", "Perhaps"),
			422, `status.conditions[1].status: Unsupported value`,
		},
		{
			"the condition of the other one", applied, "/p/status?fieldManager=y", condition("One", "False"),
			409, `conditions[type=\"One\"].status`,
		},
		{
			"an update", put, "/b", version(part("b", `"color":"blue","replicas":5,"no":1`)),
			200, `"spec":{"color":"blue","paint":{"coats":2},"replicas":5}`,
		},
		{
			"a strict update", put, "/b?fieldValidation=Strict", version(part("b", `"color":"blue","no":1`)),
			400, `unknown field \"spec.no\"`,
		},
		{"an update that drops what is required", put, "/b", version(part("b", `"replicas":5`)), 422, `spec.color: Required value`},
		{"an update that drops a default", put, "/b", version(part("b", `"color":"blue"`)), 200, `"replicas":3`},
		{
			"an update of the status", put, "/b/status",
			version(strings.TrimSuffix(part("b", `"color":"red"`), "}") + `,"status":{"phase":"Done"}}`),
			200, `"spec":{"color":"blue","paint":{"coats":2},"replicas":3},"status":{"phase":"Done","steps":1}`,
		},
		{
			"a patch of JSON", "json-patch+json", "/b", `[{"op":"add","path":"/spec/no","value":1},{"op":"remove","path":"/spec/replicas"}]`,
			200, `"spec":{"color":"blue","paint":{"coats":2},"replicas":3}`,
		},
		{
			"a wrong patch of JSON", "json-patch+json", "/b", `[{"op":"replace","path":"/spec/color","value":"green"}]`,
			422, `spec.color: Unsupported`,
		},
		{
			"a scale that is replaced", put, "/b/scale",
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"b"},"spec":{"replicas":7}}`,
			200, `"spec":{"replicas":7}`,
		},
		{
			"a scale over the maximum", put, "/b/scale",
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"b"},"spec":{"replicas":70}}`,
			422, `should be less than or equal to 9`,
		},
		{"no such subresource", listed, "/b/nothing", "", 404, `NotFound`},
		{"what is served", listed, "/apis/example.com/v1", "", 200, `"name":"parts/scale"`},
		{"it applies more", applied, "/p?fieldManager=x", part("p", `"color":"red","replicas":5`), 200, `"replicas":5`},
		{"and no more, so that the default is back", applied, "/p?fieldManager=x", part("p", `"color":"red"`), 200, `"replicas":3`},
		{
			"it applies an object in an object", applied, "/p?fieldManager=x",
			part("p", `"color":"red","template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","finalizers":["example.com/x"]}}`),
			200, `"v:\"example.com/x\"":{}`,
		},
		{
			"it applies what is not known", applied, "/p?fieldManager=x", part("p", `"color":"red","no":1`),
			500, `.spec.no: field not declared in schema`,
		},
		{
			"it applies what is invalid", applied, "/p?fieldManager=x&force=true", part("p", `"color":"green"`),
			422, `spec.color: Unsupported value`,
		},
	}
}

// say sends a line, and returns the code and the body of the answer.
func (l line) say(t *testing.T, client http.RoundTripper, host string) (int, map[string]any) {
	t.Helper()
	method, form := l.method, "json"
	if strings.Contains(method, "patch") {
		method, form = http.MethodPatch, method
	}
	sent := l.body
	if strings.Contains(sent, "{version}") {
		name, _, _ := strings.Cut(strings.TrimPrefix(l.path, "/"), "?")
		_, now := line{method: listed, path: "/" + strings.TrimSuffix(name, "/status")}.say(t, client, host)
		metadata, _ := now["metadata"].(map[string]any)
		sent = strings.Replace(sent, "{version}", fmt.Sprint(metadata["resourceVersion"]), 1)
	}
	path := l.path
	if !strings.HasPrefix(path, "/apis") {
		path = parts + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, host+path, strings.NewReader(sent))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/"+form)
	answer, err := client.RoundTrip(r)
	require.NoError(t, err)
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	var body map[string]any
	require.NoError(t, json.Unmarshal(data, &body), string(data))
	return answer.StatusCode, body
}

func partServer(t *testing.T) *simtest.Server {
	t.Helper()
	kinds, err := upstream.Definitions("testdata/parts.yaml")
	require.NoError(t, err)
	return &simtest.Server{Kinds: kinds, Machinery: &upstream.Machinery{}}
}

func TestObjectsOfADefinitionAreThoseOfItsSchema(t *testing.T) {
	t.Parallel()
	server := partServer(t)
	for _, l := range conversation() {
		code, body := l.say(t, server, "http://simtest")
		text, err := json.Marshal(body)
		require.NoError(t, err)
		assert.Equal(t, l.code, code, "%s: %s", l.what, text)
		assert.Contains(t, string(text), l.text, l.what)
	}
}

// TestARealServerAnswersTheSame says the same to a kube-apiserver.
func TestARealServerAnswersTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	define(t, client, cluster.Config.Host)
	server := partServer(t)
	for _, l := range conversation() {
		want, genuine := l.say(t, client.Transport, cluster.Config.Host)
		code, simulated := l.say(t, server, "http://simtest")
		assert.Equal(t, want, code, l.what)
		if l.what != "a fraction" { // of which 1.36 says one thing more
			assert.Equal(t, alike(genuine), alike(simulated), l.what)
		}
	}
}

// define makes the namespace and the definition, and waits until it is served.
func define(t *testing.T, client *http.Client, host string) {
	t.Helper()
	text, err := os.ReadFile("testdata/parts.yaml")
	require.NoError(t, err)
	for path, body := range map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": string(text),
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, host+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/yaml")
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusCreated, answer.StatusCode, path)
	}
	await.Eventually(t, "the definition is served", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+parts, http.NoBody)
		require.NoError(t, err)
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode == http.StatusOK
	})
}

// orderOf is by what managers, resources and verbs are sorted, of which a real server has another order.
func orderOf(value any) string {
	entry, _ := value.(map[string]any)
	switch {
	case entry["manager"] != nil:
		return fmt.Sprint(entry["manager"], entry["subresource"])
	case entry["verbs"] != nil:
		return fmt.Sprint(entry["name"])
	case value == "create" || value == "update":
		return fmt.Sprint(value)
	}
	return ""
}

// object is one within a message.
var object = regexp.MustCompile(`\{\\".*\}`)

// alike is an answer without what always differs.
func alike(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, each := range v {
			v[name] = alike(each)
			always := []string{"uid", "resourceVersion", "creationTimestamp", "time", "storageVersionHash"}
			if slices.Contains(always, name) || name == "continue" && each == "" {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = alike(v[i])
		}
		slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(orderOf(a), orderOf(b)) })
	case string:
		return object.ReplaceAllString(v, "{}")
	}
	return value
}

// TestWhatWasInvalidBeforeMayStay is about objects that are older than their definition.
func TestWhatWasInvalidBeforeMayStay(t *testing.T) {
	t.Parallel()
	kinds, err := upstream.Definitions("testdata/parts.yaml")
	require.NoError(t, err)
	old := func(limit float64) simtest.Object {
		return simtest.Object{
			"apiVersion": "example.com/v1", "kind": "Part", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"color": "green", "replicas": 20.0, "limit": limit},
		}
	}
	first := kinds[0].Schema.Invalid(nil, old(30), "")
	require.Len(t, first, 3, "two fields, and the rules that cannot be evaluated")
	for range 20 {
		require.Equal(t, first, kinds[0].Schema.Invalid(nil, old(30), ""), "the order is always the same")
	}
	require.Empty(t, kinds[0].Schema.Invalid(old(30), old(31), ""))
	worse := old(31)
	worse.Set(21.0, "spec", "replicas")
	require.Equal(t, []simtest.Cause{{
		Reason: "FieldValueInvalid", Field: "spec.replicas",
		Message: "Invalid value: 21: spec.replicas in body should be less than or equal to 9",
	}}, kinds[0].Schema.Invalid(old(30), worse, ""))
}
