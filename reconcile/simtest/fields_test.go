package simtest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// builtIn are kinds with defaults, and with fields that are required or may not change.
func builtIn() []simtest.Kind {
	return []simtest.Kind{
		{Version: "v1", Resource: "configmaps", Kind: "ConfigMap"},
		{Version: "v1", Resource: "secrets", Kind: "Secret"},
		{Version: "v1", Resource: "services", Kind: "Service", Status: true},
		{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Status: true},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
		{Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Status: true},
		{Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Status: true},
		{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Status: true},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding"},
	}
}

// template is the spec of a workload of one container. more is after its selector.
func template(app, label, more string) string {
	return fmt.Sprintf(
		`{"spec":{%s"selector":{"matchLabels":{"app":%q}},"template":{"metadata":{"labels":{"app":%q}},`+
			`"spec":{"containers":[{"name":"web","image":"web","ports":[{"containerPort":80}]},{"name":"b","image":"b:1"}]}}}}`, more, app, label,
	)
}

const roleOf = `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%q}}`

const (
	selectorKept  = `422 spec.selector: Invalid value: {"matchLabels":{"app":"other"}}: field is immutable`
	unselected    = "422 spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`"
	ofStatefulSet = `422 spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', ` +
		`'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden`
	ofClaim = `422 spec: Forbidden: spec is immutable after creation except resources.requests and ` +
		`volumeAttributesClassName for bound claims`
	noContainers = `{"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}}}}}`
	once         = `{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}}`
	endless      = `{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a"}]}}}}`
)

// fieldScript are requests, and what a real server says of the object or its fields.
var fieldScript = []struct{ request, body, want string }{
	{"POST deployments/d", template("web", "web", ""), `201`},
	{"PUT deployments/d", template("web", "web", ""), `200`},
	{"PUT deployments/d", template("web", "web", `"strategy":{"type":"Recreate"},"replicas":2,`), `200`},
	{"PUT deployments/d", template("other", "other", ""), selectorKept},
	{"PUT deployments/d", template("web", "other", ""), unselected},
	{"POST deployments/e", template("web", "other", ""), unselected},
	{"POST deployments/e", noContainers, `422 spec.template.spec.containers: Required value`},
	{
		"PATCH deployments/d", `{"spec":{"template":{"spec":{"containers":[{"name":"web"}]}}}}`,
		`422 spec.template.spec.containers[0].image: Required value`,
	},
	{"PATCH deployments/d", `{"spec":{"template":{"spec":{"containers":[]}}}}`, `422 spec.template.spec.containers: Required value`},
	{"POST replicasets/r", template("web", "web", ""), `201`},
	{"PUT replicasets/r", template("other", "other", ""), selectorKept},
	{"POST statefulsets/s", template("web", "web", `"serviceName":"web",`), `201`},
	{"PUT statefulsets/s", template("web", "web", `"serviceName":"web","replicas":3,`), `200`},
	{"PUT statefulsets/s", template("other", "other", `"serviceName":"web",`), ofStatefulSet},
	{"POST daemonsets/s", template("web", "web", ""), `201`},
	{"PUT daemonsets/s", template("other", "other", ""), selectorKept},
	{"POST services/s", `{"spec":{"ports":[{"port":80}],"selector":{"app":"web"}}}`, `201`},
	{"PUT services/s", `{"spec":{"ports":[{"port":81,"targetPort":"web"}],"selector":{"app":"web"}}}`, `200`},
	{"PATCH services/s", `{"spec":{"clusterIP":"None"}}`, `422 spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`},
	{"PATCH services/s", `{"spec":{"ports":null}}`, `422 spec.ports: Required value`},
	{"POST services/none", `{"spec":{}}`, `422 spec.ports: Required value`},
	{"POST services/headless", `{"spec":{"clusterIP":"None"}}`, `201`},
	{"POST services/external", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`, `201`},
	{"PUT services/external", `{"spec":{"ports":[{"port":80}]}}`, `200`},
	{"POST secrets/s", `{"data":{"a":"eA=="},"stringData":{"b":"y"}}`, `201`},
	{"PATCH secrets/s", `{"stringData":{"a":"z"}}`, `200`},
	{"PUT secrets/s", `{"stringData":{"c":"y"}}`, `200`},
	{"PATCH secrets/s", `{"type":"other"}`, `422 type: Invalid value: "other": field is immutable`},
	{"PATCH secrets/s", `{"immutable":true}`, `200`},
	{"PATCH secrets/s", `{"stringData":{"c":"x"}}`, "422 data: Forbidden: field is immutable when `immutable` is set"},
	{"POST configmaps/c", `{"data":{"a":"1"},"immutable":true}`, `201`},
	{"PATCH configmaps/c", `{"data":{"a":"2"}}`, "422 data: Forbidden: field is immutable when `immutable` is set"},
	{"PATCH configmaps/c", `{"immutable":false}`, "422 immutable: Forbidden: field is immutable when `immutable` is set"},
	{"PATCH configmaps/c", `{"metadata":{"labels":{"a":"b"}}}`, `200`},
	{"POST persistentvolumeclaims/p", `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, `201`},
	{"PATCH persistentvolumeclaims/p", `{"spec":{"accessModes":["ReadWriteMany"]}}`, ofClaim},
	{"PATCH persistentvolumeclaims/p", `{"spec":{"volumeName":"v"}}`, `200`},
	{"PATCH persistentvolumeclaims/p", `{"spec":{"volumeName":"w"}}`, ofClaim},
	{"POST jobs/always", endless, `422 spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
	{"POST jobs/j", once, `201`},
	{"PATCH jobs/j", `{"spec":{"template":{"spec":{"priorityClassName":"x"}}}}`, `422 spec.template: Invalid value: {}: field is immutable`},
	{"PUT jobs/j", once, `422 spec.selector: Required value`},
	{"PATCH jobs/j", `{"spec":{"parallelism":2}}`, `200`},
	{"POST rolebindings/r", fmt.Sprintf(roleOf, "a"), `201`},
	{
		"PUT rolebindings/r", fmt.Sprintf(roleOf, "b"),
		`422 roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: cannot change roleRef`,
	},
}

// fieldTalk sends the requests, and returns what is said of each, and what the object is after it.
func fieldTalk(t *testing.T, client http.RoundTripper, host string) (said, stored []string) {
	t.Helper()
	for _, each := range fieldScript {
		method, path, _ := strings.Cut(each.request, " ")
		resource, name, _ := strings.Cut(path, "/")
		url := ""
		var o simtest.Object
		require.NoError(t, json.Unmarshal([]byte(each.body), &o))
		for _, k := range builtIn() {
			if k.Resource == resource {
				url = host + "/api/v1/namespaces/default/" + resource
				o["apiVersion"], o["kind"] = "v1", k.Kind
				if k.Group != "" {
					url, o["apiVersion"] = host+"/apis/"+k.Group+"/v1/namespaces/default/"+resource, k.Group+"/v1"
				}
			}
		}
		o.Set(name, "metadata", "name")
		if method != http.MethodPost {
			url += "/" + name
		}
		body, err := json.Marshal(o)
		require.NoError(t, err)
		code, answer := exchange(t.Context(), t, client, method, url, string(body))
		line := fmt.Sprint(code)
		if causes, ok := answer.Field("details", "causes").([]any); ok {
			cause := simtest.Object(causes[0].(map[string]any))
			line = fmt.Sprintf("%d %v: %v", code, cause["field"], cause["message"])
			line = regexp.MustCompile(`^(422 spec.template: Invalid value: ){.*}`).ReplaceAllString(line, "${1}{}")
		}
		said, stored = append(said, line), append(stored, content(t, answer))
	}
	return said, stored
}

func exchange(ctx context.Context, t *testing.T, client http.RoundTripper, method, url, body string) (int, simtest.Object) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == http.MethodPatch])
	answer, err := client.RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	var o simtest.Object
	require.NoError(t, json.Unmarshal(data, &o), string(data))
	return answer.StatusCode, o
}

// content is what an object has beside its metadata and status, without a drawn address.
func content(t *testing.T, o simtest.Object) string {
	t.Helper()
	if o["kind"] == "Status" {
		return ""
	}
	uid := o.UID()
	delete(o, "metadata")
	delete(o, "status")
	if ip := o.Field("spec", "clusterIP"); o["kind"] == "Service" && ip != nil && ip != "None" {
		o.Set("drawn", "spec", "clusterIP")
		require.Equal(t, []any{ip}, o.Field("spec", "clusterIPs"))
		o.Set("drawn", "spec", "clusterIPs")
	}
	data, err := json.Marshal(o)
	require.NoError(t, err)
	return strings.ReplaceAll(string(data), cmp.Or(uid, "no uid"), "uid")
}

// TestFieldsAreAsInARealServer has the answers of a real server in a table. With time, it asks
// a real one for them, and for the defaults.
func TestFieldsAreAsInARealServer(t *testing.T) {
	t.Parallel()
	said, stored := fieldTalk(t, &simtest.Server{Kinds: builtIn()}, "http://simtest")
	for i, each := range fieldScript {
		require.Equal(t, each.want, said[i], each.request)
	}
	require.JSONEq(t, `{
		"apiVersion":"apps/v1","kind":"Deployment","spec":{
			"replicas":1,"revisionHistoryLimit":10,"progressDeadlineSeconds":600,"selector":{"matchLabels":{"app":"web"}},
			"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},
			"template":{"metadata":{"labels":{"app":"web"}},"spec":{
				"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler",
				"securityContext":{},
				"containers":[
					{"name":"web","image":"web","imagePullPolicy":"Always","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{},
						"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"},
					{"name":"b","image":"b:1","imagePullPolicy":"IfNotPresent","resources":{},
						"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}
				]}}}}`, stored[0])
	if testing.Short() {
		return
	}
	cluster := kubetest.Start(t, kubetest.Options{})
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	really, kept := fieldTalk(t, client.Transport, cluster.Config.Host)
	for i, each := range fieldScript {
		// A real server writes some names of Go, and a difference below.
		first, _, _ := strings.Cut(really[i], "\n")
		require.Equal(t, strings.ToLower(first), strings.ToLower(said[i]), each.request)
		require.Equal(t, kept[i], stored[i], each.request)
	}
}
