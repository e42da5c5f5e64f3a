package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/agenttoken"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/openapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

var update = flag.Bool("update", false, "write openapi.json and docs/api.md")

const description = `The control plane stores what clusters and regions should run, and serves it to their agents.
Every answer other than success has an Error as its body, whose code is for programs. A database that is busy, or full,
is 503 with Retry-After: nothing was changed, and the request can be sent again.`

// routes are all routes with a body that a program reads. The pages have none.
func routes(t *testing.T) []adminapi.Route {
	t.Helper()
	server, err := clusters.New(clusters.Config{
		Store: &clusters.Store{}, Admins: tokens.Only(controlplanetest.AdminToken),
		AdminRoutes: slices.Concat(regions.AdminRoutes(&regions.Store{}), audit.Routes(&audit.Log{}),
			tokens.Routes(tokens.Only(controlplanetest.AdminToken), &tokens.Uses{}), usage.Routes(nil)),
		OpenRoutes: agents.Renewal{}.Routes(),
	})
	require.NoError(t, err)
	return slices.Concat(server.Routes(), regions.Routes())
}

// TestTheReferenceIsUpToDate makes the document and its page from the routes, and with
// -update writes them.
func TestTheReferenceIsUpToDate(t *testing.T) {
	s := newSchemas(t)
	all := routes(t)
	examples := exchanges(t)
	paths, documented := map[string]object{}, 0
	for _, route := range all {
		operation := s.operation(route, examples[route.Method+" "+route.Path])
		if paths[route.Path] == nil {
			paths[route.Path] = object{}
		}
		paths[route.Path][strings.ToLower(route.Method)] = operation
		documented++
	}
	s.of(reflect.TypeFor[starbase.ErrorBody](), answered)
	s.logError()
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "trueup control plane", "version": "v1", "description": strings.Join(strings.Fields(description), " "),
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers": []object{{"url": "/"}},
		"tags": []object{
			{"name": "clusters", "description": "Clusters and what runs there, for administrators."},
			{"name": "regions", "description": "Regions and what runs there, for administrators."},
			{"name": "audit", "description": "Who changed what, and who has access."},
			{"name": "usage", "description": "What was used, for invoices."},
			{"name": "agents", "description": "For the agents of clusters, each with its token, and the renewal of any agent's token."},
			{"name": "streams", "description": "For the agents of regions, each with its token."},
		},
		"paths": paths,
		"components": object{
			"schemas": s.named, "responses": s.responses,
			"securitySchemes": object{
				"admin": object{"type": "http", "scheme": "bearer", "description": "A token of --admin-token-file, or an ID token of --oidc-issuer."},
				"agent": object{
					"type": "http", "scheme": "bearer", "description": "The token that the registration of the cluster or region answered.",
				},
			},
		},
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetIndent("", " ")
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(document))
	compare(t, "openapi.json", buffer.Bytes())
	compare(t, filepath.Join(root(t), "docs", "api.md"), page(all))
	t.Logf("figure api_routes_documented_percent %d %%", 100*documented/len(all))
}

// compare holds a file against what it should be, and with -update writes it.
func compare(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o600))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	was, is := strings.Split(string(have), "\n"), strings.Split(string(want), "\n")
	for n := range min(len(was), len(is)) {
		require.Equal(t, is[n], was[n], "%s:%d: run go test -run UpToDate ./cmd/controlplane/internal/front/openapi -update", file, n+1)
	}
	require.Len(t, was, len(is), file)
}

var parameter = regexp.MustCompile(`\{([a-z_]+)\}`)

// parameters are the members of paths.
var parameters = map[string]string{
	"cluster_id": "The UUID of the cluster.", "project_id": "The UUID of the project.", "service_id": "The UUID of the service.",
	"environment": "The environment of the service, such as production.", "var_group_id": "The UUID of the var group.",
	"region_id": "The id of the region.", "id": "The id of the resource.", "scope": "The name of the region.",
}

// tag returns the group that a route belongs to, and the credential that it needs.
func tag(path string) (tag, credential string) {
	switch {
	case strings.HasPrefix(path, adminapi.Prefix+"audit"), path == adminapi.Prefix+"tokens", path == adminapi.Prefix+"me":
		return "audit", "admin"
	case path == oidcauth.SignInPath:
		return "audit", ""
	case strings.HasPrefix(path, adminapi.Prefix+"usage"):
		return "usage", "admin"
	case strings.HasPrefix(path, adminapi.Prefix+"regions"), path == adminapi.Prefix+"log", path == adminapi.Prefix+"new-log-epoch":
		return "regions", "admin"
	case strings.HasPrefix(path, adminapi.Prefix):
		return "clusters", "admin"
	case strings.HasPrefix(path, "/api/v1/clusters/"), path == agenttoken.Path:
		return "agents", "agent"
	default:
		return "streams", "agent"
	}
}

func (s *schemas) operation(route adminapi.Route, example exchange) object {
	tag, credential := tag(route.Path)
	operation := object{"tags": []string{tag}, "security": []object{{credential: []string{}}}}
	if credential == "" {
		operation["security"] = []object{}
	}
	var params []object
	for _, name := range parameter.FindAllStringSubmatch(route.Path, -1) {
		require.NotEmpty(s.t, parameters[name[1]], name[1])
		params = append(params, object{
			"name": name[1], "in": "path", "required": true, "description": parameters[name[1]], "schema": object{"type": "string"},
		})
	}
	if route.Operation.Name == "" {
		return s.call(route, operation)
	}
	operation["operationId"], operation["summary"] = route.Operation.Name, route.Operation.Summary
	if credential == "admin" {
		operation["description"] = "Needs the role " + role(route) + "."
	}
	for _, q := range route.Operation.Query {
		params = append(params, object{"name": q.Name, "in": "query", "description": q.Description, "schema": q.Schema})
	}
	if len(params) > 0 {
		operation["parameters"] = params
	}
	media := func(schema, example any) object {
		content := object{"schema": schema}
		if example != nil {
			content["example"] = example
		}
		return object{"application/json": content}
	}
	if route.Operation.Body != nil {
		as := asked
		if tag == "agents" {
			as = tolerated
		}
		operation["requestBody"] = object{
			"required": !route.Operation.BodyOptional,
			"content":  media(s.of(reflect.TypeOf(route.Operation.Body), as), example.body),
		}
		s.require(reflect.TypeOf(route.Operation.Body), example.required)
	}
	responses := object{}
	for status, body := range route.Operation.Answers {
		response := object{"description": http.StatusText(status)}
		var shown any
		if example.status == status {
			shown = example.answer
		}
		switch body := body.(type) {
		case nil:
		case adminapi.Part:
			response["content"] = media(s.part(body), shown)
		case adminapi.CSV:
			response["content"] = object{"text/csv": object{"schema": object{"type": "string"}, "example": shown}}
		default:
			response["content"] = media(s.of(reflect.TypeOf(body), answered), shown)
		}
		responses[strconv.Itoa(status)] = response
	}
	failure := "ErrorBody"
	if tag == "streams" {
		failure = "LogError"
	}
	for status, codes := range refusals(route) {
		response := object{
			"description": "The code is " + strings.Join(codes, " or ") + ".", "x-codes": codes, "content": media(ref(failure), nil),
		}
		if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
			wait := object{"description": "After how many seconds to ask again.", "schema": object{"type": "integer"}}
			response["headers"] = object{"Retry-After": wait}
		}
		name := failure + "_" + strconv.Itoa(status) + "_" + strings.Join(codes, "_")
		s.responses[name] = response
		responses[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + name}
	}
	operation["responses"] = responses
	require.NotZero(s.t, example.status, "%s %s has no example", route.Method, route.Path)
	require.Contains(s.t, route.Operation.Answers, example.status, "%s %s: %v", route.Method, route.Path, example.answer)
	return operation
}

// role returns who may use a route of the administration.
func role(route adminapi.Route) string {
	return map[adminapi.Right]string{
		adminapi.RightRead:       "reader",
		adminapi.RightOperate:    "operator of the project or region",
		adminapi.RightAdminister: "administrator",
	}[route.Needs()]
}

// call describes a call of Connect.
func (s *schemas) call(route adminapi.Route, operation object) object {
	service, name, _ := strings.Cut(strings.TrimPrefix(route.Path, "/"), "/")
	operation["operationId"] = strings.ReplaceAll(service, ".", "_") + "_" + name
	failure := object{"description": "An error of Connect; its code is in the body."}
	operation["responses"] = object{"200": object{"description": "The answer."}, "default": failure}
	method := ctrlv1.File_ctrl_v1_cluster_proto.Services().ByName("ClusterService").Methods().ByName(protoName(name))
	if method == nil || string(method.Parent().FullName()) != service {
		operation["summary"] = "The reflection of gRPC, for tools such as grpcurl."
		return operation
	}
	kind, note := "application/json", ""
	if method.IsStreamingServer() {
		kind, note = "application/connect+json", " It is a stream: each message stands in an envelope of Connect."
	}
	operation["summary"] = fmt.Sprintf("Call %s of ctrl.v1.ClusterService by Connect, gRPC or gRPC-Web.%s", name, note)
	operation["requestBody"] = object{"required": true, "content": object{kind: object{"schema": s.message(method.Input())}}}
	operation["responses"] = object{
		"200":     object{"description": "The answer.", "content": object{kind: object{"schema": s.message(method.Output())}}},
		"default": failure,
	}
	return operation
}

// refusals returns the codes of the errors of a route, by status.
func refusals(route adminapi.Route) map[int][]string {
	all := map[int][]string{}
	for status, codes := range route.Operation.Errors {
		all[status] = slices.Clone(codes)
	}
	add := func(status int, codes ...string) { all[status] = append(all[status], codes...) }
	_, credential := tag(route.Path)
	if credential == "admin" {
		add(http.StatusUnauthorized, "token_expired")
		add(http.StatusForbidden, "no_role")
		add(http.StatusServiceUnavailable, "issuer_unavailable")
		if route.Needs() != adminapi.RightRead {
			add(http.StatusForbidden, "forbidden")
		}
	}
	if credential != "" {
		add(http.StatusUnauthorized, "unauthorized")
		add(http.StatusTooManyRequests, "too_many_attempts")
	}
	add(http.StatusInternalServerError, "internal")
	add(http.StatusServiceUnavailable, "busy", "disk_full")
	add(http.StatusBadRequest, "invalid")
	if route.Operation.Body != nil {
		add(http.StatusBadRequest, "malformed", "unknown_field")
		add(http.StatusRequestEntityTooLarge, "too_large")
		add(http.StatusUnsupportedMediaType, "unsupported_media_type")
	}
	for status := range all {
		slices.Sort(all[status])
		all[status] = slices.Compact(all[status])
	}
	return all
}

// page returns the reference for people.
func page(all []adminapi.Route) []byte {
	var b strings.Builder
	b.WriteString(`# The API of the control plane

Every route with its parameters, and the codes of its errors. The control plane serves the same with all schemas and
examples as an OpenAPI 3.1 document at ` + "`/openapi.json`" + `, without a credential. Generated; see
` + "`cmd/controlplane/internal/front/openapi`" + `.

The paths of the tables are below ` + "`" + adminapi.Prefix + "`" + `: ` + "`clusters`" + ` is ` + "`GET " + adminapi.Prefix + "clusters`" + `. One that begins with
` + "`/`" + ` is whole.

Administrators send ` + "`Authorization: Bearer`" + ` with a token of ` + "`--admin-token-file`" + ` or an ID token of
` + "`--oidc-issuer`" + `, agents with theirs. A list answers a part: at most ` + "`limit`" + ` items, and ` + "`next`" + ` if more
follow, which is the ` + "`after`" + ` of the next request.
A token has a role; see [the runbook](runbooks.md#the-tokens-of-the-administrators). Each route can also answer
400 ` + "`invalid`" + `, 401 ` + "`unauthorized`" + ` or ` + "`token_expired`" + `, 403 ` + "`forbidden`" + ` to a role that lacks the right or
` + "`no_role`" + ` to a person without a role, 429 ` + "`too_many_attempts`" + `, 500 ` + "`internal`" + `, and 503
` + "`busy`" + `, ` + "`disk_full`" + `, or ` + "`issuer_unavailable`" + ` if an ID token cannot be checked; one with a body also
400 ` + "`malformed`" + ` or ` + "`unknown_field`" + `, 413 ` + "`too_large`" + ` and 415 ` + "`unsupported_media_type`" + `.
`)
	titles := map[string]string{
		"clusters": "Clusters, projects, services",
		"regions":  "Regions and their resources",
		"audit":    "The audit, and who has access",
		"usage":    "Usage",
		"agents":   "Agents of clusters, and the renewal of tokens",
		"streams":  "Agents of regions",
	}
	for _, group := range []string{"clusters", "regions", "audit", "usage", "agents", "streams"} {
		fmt.Fprintf(&b, "\n## %s\n\n| method | path | what | role | body | answer | errors |\n|---|---|---|---|---|---|---|\n", titles[group])
		for _, route := range all {
			if of, _ := tag(route.Path); of != group || route.Operation.Name == "" {
				continue
			}
			summary := route.Operation.Summary
			if len(route.Operation.Query) > 0 {
				var names []string
				for _, q := range route.Operation.Query {
					names = append(names, "`?"+q.Name+"`")
				}
				summary += " " + strings.Join(names, ", ") + "."
			}
			var errs []string
			for _, status := range slices.Sorted(maps.Keys(route.Operation.Errors)) {
				codes := slices.Clone(route.Operation.Errors[status])
				slices.Sort(codes)
				errs = append(errs, fmt.Sprintf("%d `%s`", status, strings.Join(slices.Compact(codes), "`, `")))
			}
			path, needs := strings.TrimPrefix(route.Path, adminapi.Prefix), "agent"
			switch _, credential := tag(route.Path); credential {
			case "admin":
				needs, _, _ = strings.Cut(role(route), " ")
			case "":
				needs = "none"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s | %s |\n", route.Method, path, strings.ReplaceAll(summary, "|", `\|`), needs,
				strings.Join(members(route.Operation.Body), ", "), answers(route), strings.Join(errs, "; "))
		}
	}
	b.WriteString("\nThe calls of `ctrl.v1.ClusterService` are in `cmd/api/ctrl/v1`, and in the document.\n")
	return []byte(b.String())
}

// members returns the members of a body.
func members(body any) (names []string) {
	if part, ok := body.(adminapi.Part); ok {
		return []string{"`" + part.Name + "`"}
	}
	if _, ok := body.(adminapi.CSV); ok {
		return []string{"a table"}
	}
	if body == nil {
		return nil
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(body)) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, "`"+name+"`")
		}
	}
	return names
}

// answers returns what the answers of a route have.
func answers(route adminapi.Route) string {
	const most = 8
	var all []string
	for _, status := range slices.Sorted(maps.Keys(route.Operation.Answers)) {
		switch names := members(route.Operation.Answers[status]); {
		case status == http.StatusCreated:
			all = append(all, "201 if it is new")
		case status == http.StatusAccepted:
			all = append(all, "202 if it needs a second person")
		case len(names) == 0:
			all = append(all, strconv.Itoa(status))
		case len(names) > most:
			all = append(all, strings.Join(names[:most], ", ")+", and more")
		default:
			all = append(all, strings.Join(names, ", "))
		}
	}
	return strings.Join(all, "; ")
}

func TestTheReferenceIsServedToEverybody(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(openapi.Handler())
	defer server.Close()
	ask := func(method, tag string) (*http.Response, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+openapi.Path, nil)
		require.NoError(t, err)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer, body
	}
	answer, body := ask("GET", "") //nolint:bodyclose // ask closes it
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	require.Equal(t, openapi.Document, body)
	again, body := ask("GET", answer.Header.Get("ETag")) //nolint:bodyclose // ask closes it
	require.Equal(t, http.StatusNotModified, again.StatusCode)
	require.Empty(t, body)
	refused, _ := ask("PUT", "") //nolint:bodyclose // ask closes it
	require.Equal(t, http.StatusMethodNotAllowed, refused.StatusCode)
	require.Equal(t, "GET, HEAD", refused.Header.Get("Allow"))
}
