package talktest

import (
	"fmt"
	"net/http"
	"strings"
)

// script is what is said before the random part: what happens too rarely by chance.
// {ns} stands for the namespace.
func (c *Conversation) script() []Request {
	table := "application/json;as=Table;v=v1;g=meta.k8s.io"
	aggregated := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	pod := strings.ReplaceAll((&kind{kind: "Pod", version: "v1", content: pod}).body("guarded", `"guard":"yes"`), "\n", "")
	budget := func(allowed int) string {
		return fmt.Sprintf(
			`{"status":{"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}`,
			allowed,
		)
	}
	running := `{"status":{"phase":"Running","qosClass":"BestEffort","conditions":[{"type":"Ready","status":"True"}]}}`
	evict := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"guarded"}}`
	event := `{"metadata":{"name":"e%s"},"involvedObject":{"kind":"Pod","namespace":"{ns}","name":"x"},"reason":"R","message":"m","type":"Normal",` +
		`"source":{"component":"c"},"count":2,"reportingComponent":"r","reportingInstance":"i"}`
	other := `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"f"},"regarding":{"kind":"Pod","namespace":"{ns}","name":"y"},` +
		`"reason":"S","note":"n","type":"Warning","action":"A","reportingController":"c","reportingInstance":"i","eventTime":"2020-01-01T00:00:00.000000Z"}`
	lines := []Request{
		{Path: "/apis/example.com"},
		{Path: "/apis/example.com/v1"},
		{Path: "/apis/coordination.k8s.io"},
		{Path: "/apis/coordination.k8s.io/v1"},
		{Path: "/apis/none"},
		{Path: "/apis/none/v1"},
		{Path: "/apis", Accept: aggregated},
		{Path: "/api/v1"},
		{Path: "/apis/apps/v1"},
		{Path: "/apis"},
		{Path: "/healthz"},

		{Method: "POST", Path: "/api/v1/namespaces", Body: `{"metadata":{"name":"{ns}-c","finalizers":["example.com/a"]}}`},
		{Method: "PATCH", Path: "/api/v1/namespaces/{ns}-c", Body: `{"spec":{"finalizers":null},"status":{"phase":"X"}}`},
		{Path: "/api/v1/namespaces/{ns}-c"},
		{Method: "PATCH", Path: "/api/v1/namespaces/{ns}-c", Body: `{"metadata":{"labels":null}}`},
		{Path: "/api/v1/namespaces?fieldSelector=metadata.name%3D{ns}-c"},
		{Path: "/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3D{ns}-c"},
		{Path: "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating,metadata.name%3D{ns}-c"},
		{Method: "DELETE", Path: "/api/v1/namespaces/{ns}-c"},
		{Method: "DELETE", Path: "/api/v1/namespaces/{ns}-c"},
		{Path: "/api/v1/namespaces/{ns}-c"},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}-c/configmaps", Body: `{"metadata":{"name":"a"}}`},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}-d/configmaps", Body: `{"metadata":{"name":"a"}}`},
		{
			Method: "PUT",
			Path:   "/api/v1/namespaces/{ns}-c/finalize",
			Body:   `{"metadata":{"name":"{ns}-c","finalizers":["example.com/a"]},"spec":{}}`,
		},
		{Path: "/api/v1/namespaces/{ns}-c"},
		{Method: "PATCH", Path: "/api/v1/namespaces/{ns}-c", Body: `{"metadata":{"finalizers":null}}`},
		{Path: "/api/v1/namespaces/{ns}-c"},
		{Method: "DELETE", Path: "/api/v1/namespaces/default"},
		{Method: "DELETE", Path: "/api/v1/namespaces"},

		{
			Method: "POST",
			Path:   "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
			Body: `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget",` +
				`"metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"guard":"yes"}}}}`,
		}, // and the status is a default
		{Method: "PATCH", Path: "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/b/status", Body: budget(0)},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods", Body: pod},
		{Method: "PATCH", Path: "/api/v1/namespaces/{ns}/pods/guarded/status", Body: running},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods/guarded/eviction", Body: evict},
		{Method: "PATCH", Path: "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/b/status", Body: budget(1)},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods/guarded/eviction?dryRun=All", Body: evict},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods/guarded/eviction", Body: evict},
		{Path: "/api/v1/namespaces/{ns}/pods/guarded"},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods", Body: pod},
		{Method: "POST", Path: "/api/v1/namespaces/{ns}/pods/guarded/eviction", Body: evict},

		{Method: "POST", Path: "/api/v1/namespaces/{ns}/events", Body: fmt.Sprintf(event, "1")},
		{Method: "POST", Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events", Body: other},
		{Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events/e1"},
		{Path: "/api/v1/namespaces/{ns}/events/f"},
		{Path: "/api/v1/namespaces/{ns}/events?fieldSelector=involvedObject.name%3Dx,source%3Dc"},
		{Path: "/api/v1/namespaces/{ns}/events?fieldSelector=involvedObject.name%3Dy,reportingComponent%3Dc"},
		{Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events?fieldSelector=regarding.name%3Dy,type%3DWarning"},
		{Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events?fieldSelector=note%3Dy"},
		{Method: "PATCH", Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events/f", Body: `{"metadata":{"labels":{"a":"b"}}}`},
		{Path: "/api/v1/namespaces/{ns}/events"},
		{Method: "DELETE", Path: "/api/v1/namespaces/{ns}/events/f?propagationPolicy=Foreground"},
		{Method: "DELETE", Path: "/apis/events.k8s.io/v1/namespaces/{ns}/events"},

		{
			Method: "POST",
			Path:   "/apis/example.com/v1/namespaces/{ns}/widgets",
			Body:   `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"t"}}`,
		},
		{Path: "/apis/example.com/v1/namespaces/{ns}/widgets/t", Accept: table},
		{Path: "/apis/example.com/v1/namespaces/{ns}/widgets?includeObject=Object", Accept: table},
		{Path: "/apis/example.com/v1/namespaces/{ns}/widgets?includeObject=None&limit=1", Accept: table},
		{Method: "DELETE", Path: "/apis/example.com/v1/namespaces/{ns}/widgets/t"},
	}
	for n := range lines {
		r := &lines[n]
		r.Path, r.Body = strings.ReplaceAll(r.Path, "{ns}", c.Namespace), strings.ReplaceAll(r.Body, "{ns}", c.Namespace)
		switch r.Method {
		case "":
			r.Method = http.MethodGet
		case http.MethodPatch:
			r.Form = mergeForm
		default:
			r.Form = jsonForm
		}
	}
	return lines
}
