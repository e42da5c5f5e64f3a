package simtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// script is a conversation with an API server, and how it answers: the code, and
// the reason of a failure or what is left of the object. {a.uid}, {a.version} and
// {a.old} stand for the UID and the versions of a, as they were last answered.
var script = []struct{ request, body, want string }{
	{
		"POST widgets",
		`{"metadata":{"name":"a","labels":{"tier":"web"}},"spec":{"size":1},"status":{"phase":"made up"}}`,
		`201 {"generation":1,"labels":{"tier":"web"},"spec":{"size":1}}`,
	},
	{"POST widgets", `{"metadata":{"name":"a"}}`, `409 AlreadyExists`},
	{"POST widgets", `{"metadata":{"name":"b","namespace":"elsewhere"}}`, `400 BadRequest`},
	{"POST widgets", `{"spec":{}}`, `422 Invalid`},
	{"POST widgets?dryRun=All", `{"metadata":{"name":"b"}}`, `201 {"generation":1}`},
	{"GET widgets/b", ``, `404 NotFound`},
	{"GET gadgets/b", ``, `404 NotFound`},
	{"PATCH widgets/a", `{"spec":{"size":2}}`, `200 {"generation":2,"labels":{"tier":"web"},"spec":{"size":2}}`},
	{
		"PATCH widgets/a",
		`{"metadata":{"labels":{"tier":null,"app":"shop"}}}`,
		`200 {"generation":2,"labels":{"app":"shop"},"spec":{"size":2}}`,
	},
	{"PATCH widgets/a", `{"status":{"phase":"ignored"}}`, `200 {"generation":2,"labels":{"app":"shop"},"spec":{"size":2},"unchanged":true}`},
	{
		"PATCH widgets/a/status",
		`{"spec":{"size":9},"status":{"phase":"Ready"}}`,
		`200 {"generation":2,"labels":{"app":"shop"},"spec":{"size":2},"status":{"phase":"Ready"}}`,
	},
	{"PATCH widgets/a", `{"metadata":{"resourceVersion":"{a.old}"},"spec":{"size":3}}`, `409 Conflict`},
	{"PATCH widgets/a", `{"metadata":{"uid":"another"},"spec":{"size":3}}`, `422 Invalid`},
	{"PUT widgets/a", `{"metadata":{"name":"a","uid":"another","resourceVersion":"{a.version}"},"spec":{"size":3}}`, `409 Conflict`},
	{
		"PATCH widgets/a",
		`{"metadata":{"resourceVersion":"{a.version}","uid":"{a.uid}"},"spec":{"size":3}}`,
		`200 {"generation":3,"labels":{"app":"shop"},"spec":{"size":3},"status":{"phase":"Ready"}}`,
	},
	{"PATCH widgets/none", `{"spec":{"size":3}}`, `404 NotFound`},
	{"PUT widgets/a", `{"metadata":{"name":"a"},"spec":{"size":4}}`, `422 Invalid`},
	{"PUT widgets/a", `{"metadata":{"name":"a","resourceVersion":"{a.old}"},"spec":{"size":4}}`, `409 Conflict`},
	{
		"PUT widgets/a",
		`{"metadata":{"name":"a","resourceVersion":"{a.version}"},"spec":{"size":4}}`,
		`200 {"generation":4,"spec":{"size":4},"status":{"phase":"Ready"}}`,
	},
	{"PUT widgets/none", `{"metadata":{"name":"none","resourceVersion":"1"}}`, `404 NotFound`},
	{
		"POST configmaps",
		`{"metadata":{"name":"c","labels":{"tier":"web"}},"data":{"k":"1"}}`,
		`201 {"data":{"k":"1"},"labels":{"tier":"web"}}`,
	},
	{"PUT configmaps/c", `{"metadata":{"name":"c"},"data":{"k":"2"}}`, `200 {"data":{"k":"2"}}`},
	{"PUT configmaps/c", `{"metadata":{"name":"c"},"data":{"k":"2"}}`, `200 {"data":{"k":"2"},"unchanged":true}`},
	{"PATCH configmaps/c/status", `{"data":{"k":"3"}}`, `404 NotFound`},
	{"POST configmaps", `{"metadata":{"generateName":"g-"}}`, `201 {"generated":true}`},
	{"POST configmaps", `{"metadata":{"name":"d","labels":{"tier":"db"}}}`, `201 {"labels":{"tier":"db"}}`},
	{"GET configmaps?labelSelector=tier", ``, `200 [d]`},
	{"GET configmaps?labelSelector=tier%3Dweb", ``, `200 []`},
	{"GET configmaps?labelSelector=tier%21%3Dweb,tier", ``, `200 [d]`},
	{"GET configmaps?labelSelector=%21tier&fieldSelector=metadata.name%3Dc", ``, `200 [c]`},
	{"GET configmaps?fieldSelector=data.k%3D1", ``, `400 BadRequest`},
	{"DELETE configmaps/c", `{"preconditions":{"uid":"another"}}`, `409 Conflict`},
	{"DELETE configmaps/c", `{"preconditions":{"resourceVersion":"{c.old}"}}`, `409 Conflict`},
	{"DELETE configmaps/c?dryRun=All", ``, `200 Success`},
	{"DELETE configmaps/c", `{"preconditions":{"uid":"{c.uid}","resourceVersion":"{c.version}"}}`, `200 Success`},
	{"DELETE configmaps/c", ``, `404 NotFound`},
	{"DELETE configmaps?labelSelector=tier%3Ddb", ``, `200 [d]`},
	{"GET configmaps/d", ``, `404 NotFound`},
	{
		"PATCH widgets/a",
		`{"metadata":{"finalizers":["example.com/hold"]}}`,
		`200 {"finalizers":["example.com/hold"],"generation":4,"spec":{"size":4},"status":{"phase":"Ready"}}`,
	},
	{
		"DELETE widgets/a",
		``,
		`200 {"deleting":true,"finalizers":["example.com/hold"],"generation":5,"spec":{"size":4},"status":{"phase":"Ready"}}`,
	},
	{
		"DELETE widgets/a",
		``,
		`200 {"deleting":true,"finalizers":["example.com/hold"],"generation":5,"spec":{"size":4},"status":{"phase":"Ready"},"unchanged":true}`,
	},
	{"PATCH widgets/a", `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`, `422 Invalid`},
	{
		"PATCH widgets/a",
		`{"metadata":{"deletionTimestamp":null,"labels":{"still":"here"}}}`,
		`200 {"deleting":true,"finalizers":["example.com/hold"],"generation":5,"labels":{"still":"here"},"spec":{"size":4},"status":{"phase":"Ready"}}`,
	},
	{
		"PATCH widgets/a",
		`{"metadata":{"finalizers":null}}`,
		`200 {"deleting":true,"generation":5,"labels":{"still":"here"},"spec":{"size":4},"status":{"phase":"Ready"},"unchanged":true}`,
	},
	{"GET widgets/a", ``, `404 NotFound`},
}

// watched is what two watches deliver of the script.
var watched = map[string]string{
	"widgets":                       "ADDED a, MODIFIED a, MODIFIED a, MODIFIED a, MODIFIED a, MODIFIED a, MODIFIED a, MODIFIED a, MODIFIED a, DELETED a",
	"configmaps?labelSelector=tier": "ADDED c, DELETED c, ADDED d, DELETED d",
}

// conversation is one with a server.
type conversation struct {
	client *http.Client
	host   string
	known  map[string]string
}

func (c *conversation) send(ctx context.Context, t *testing.T, request, body string) *http.Response {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	prefix := "/apis/example.com/v1"
	if strings.HasPrefix(path, "configmaps") {
		prefix = "/api/v1"
	}
	r, err := http.NewRequestWithContext(ctx, method, c.host+prefix+"/namespaces/default/"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.client.Do(r)
	require.NoError(t, err)
	return answer
}

func (c *conversation) ask(t *testing.T, request, body string) string {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	for name, value := range c.known {
		body = strings.ReplaceAll(body, "{"+name+"}", value)
	}
	if method == http.MethodPost || method == http.MethodPut {
		head := `{"apiVersion":"example.com/v1","kind":"Widget",`
		if strings.HasPrefix(path, "configmaps") {
			head = `{"apiVersion":"v1","kind":"ConfigMap",`
		}
		body = head + body[1:]
	}
	answer := c.send(t.Context(), t, request, body)
	defer answer.Body.Close()
	var o simtest.Object
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	if json.Unmarshal(data, &o) != nil { // of a resource that is not served
		return fmt.Sprint(answer.StatusCode, " NotFound")
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, c.describe(t, o))
}

// describe is what two servers have in common.
func (c *conversation) describe(t *testing.T, o simtest.Object) string {
	t.Helper()
	if o["kind"] == "Status" {
		if o["status"] == "Success" {
			return "Success"
		}
		return fmt.Sprint(o["reason"])
	}
	if items, ok := o["items"].([]any); ok {
		names := []string{}
		for _, each := range items {
			if name := simtest.Object(each.(map[string]any)).Name(); name != "kube-root-ca.crt" {
				names = append(names, name)
			}
		}
		return fmt.Sprint(names)
	}
	left := map[string]any{}
	for _, path := range [][]string{{"spec"}, {"status"}, {"data"}, {"metadata", "labels"}, {"metadata", "finalizers"}, {"metadata", "generation"}} {
		if value := o.Field(path...); value != nil {
			left[path[len(path)-1]] = value
		}
	}
	if o.Deleting() {
		left["deleting"] = true
	}
	if o.Field("metadata", "generateName") != nil && len(o.Name()) > 2 {
		left["generated"] = true
	}
	name := o.Name()
	if before := c.known[name+".version"]; before != o.ResourceVersion() {
		c.known[name+".old"] = before
	} else if c.known[name+".uid"] == o.UID() {
		left["unchanged"] = true
	}
	if o.ResourceVersion() != "" {
		c.known[name+".version"], c.known[name+".uid"] = o.ResourceVersion(), o.UID()
	}
	data, err := json.Marshal(left)
	require.NoError(t, err)
	return string(data)
}

// watch begins a watch, and returns a function that reads from it up to the last
// deletion of the script.
func (c *conversation) watch(t *testing.T, path string) (read func() string) {
	t.Helper()
	joint := "?"
	if strings.Contains(path, "?") {
		joint = "&"
	}
	list := c.send(t.Context(), t, "GET "+path, "")
	defer list.Body.Close()
	var state simtest.Object
	require.NoError(t, json.NewDecoder(list.Body).Decode(&state))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	request := "GET " + path + joint + "watch=true&resourceVersion=" + state.ResourceVersion()
	answer := c.send(ctx, t, request, "") //nolint:bodyclose // by the function below
	return func() string {
		defer answer.Body.Close()
		var events []string
		last := watched[path][strings.LastIndex(watched[path], ", ")+2:]
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			var e struct {
				Type   string
				Object simtest.Object
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
			events = append(events, e.Type+" "+e.Object.Name())
			if events[len(events)-1] == last {
				break
			}
		}
		return strings.Join(events, ", ")
	}
}

func (c *conversation) hold(t *testing.T) {
	t.Helper()
	reads := map[string]func() string{}
	for path := range watched {
		reads[path] = c.watch(t, path)
	}
	for i, step := range script {
		if got := c.ask(t, step.request, step.body); got != step.want {
			t.Errorf("%d: %s %s\n got %s\nwant %s", i, step.request, step.body, got, step.want)
		}
	}
	for path, read := range reads {
		require.Equal(t, watched[path], read())
	}
}

func kinds() []simtest.Kind { return scenario(controller{}).Kinds }

func TestTheServerKeepsTheRules(t *testing.T) {
	t.Parallel()
	server := &simtest.Server{Kinds: kinds()}
	(&conversation{client: &http.Client{Transport: server}, host: "http://simtest", known: map[string]string{}}).hold(t)
}

// TestTheRulesAreThoseOfARealServer holds the same conversation with a
// kube-apiserver.
func TestTheRulesAreThoseOfARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	require.NoError(t, cluster.Apply(t.Context(), definition))
	_, err := cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=300s")
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	c := &conversation{client: client, host: cluster.Config.Host, known: map[string]string{}}
	await.Eventually(t, `c.ask(t, "GET widgets", "") == "200 []"`, func() bool { return c.ask(t, "GET widgets", "") == "200 []" })
	c.hold(t)
}

func TestAWatchFromBeforeTheHistoryIsRefused(t *testing.T) {
	t.Parallel()
	server := &simtest.Server{Kinds: kinds()}
	c := &conversation{client: &http.Client{Transport: server}, host: "http://simtest", known: map[string]string{}}
	c.ask(t, "POST widgets", `{"metadata":{"name":"a"}}`)
	c.ask(t, "POST widgets", `{"metadata":{"name":"b"}}`)
	first := func(version string) string {
		answer := c.send(t.Context(), t, "GET widgets?watch=true&resourceVersion="+version, "")
		defer answer.Body.Close()
		line, err := bufio.NewReader(answer.Body).ReadString('\n')
		require.NoError(t, err)
		return line
	}
	require.Contains(t, first("101"), `"type":"ADDED"`)
	server.Expire()
	require.Contains(t, first("101"), `"code":410`)
	c.ask(t, "POST widgets", `{"metadata":{"name":"c"}}`)
	require.Contains(t, first("102"), `"name":"c"`, "nothing since is missing")
}
