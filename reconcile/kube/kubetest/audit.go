package kubetest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const auditLog = "audit.log"

// auditPolicy records the user and the target of each request, once per request: when
// it is answered, or for a watch when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager, system:kube-scheduler]
- level: None
  nonResourceURLs: ["/readyz*", "/healthz*", "/livez*"]
- level: Metadata
`

// Request is one request that the API server has answered.
type Request struct {
	User     string
	Verb     string // get, list, watch, create, update, patch, delete, ...
	Resource string // plural, with its subresource: deployments, pods/status
	// Namespace and Name are empty where the request has none.
	Namespace, Name string
	URI             string
	Code            int
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s %d", r.Verb, r.URI, r.Code)
}

// Requests returns the requests of one user, impersonated or real, since the
// cluster's start, in the order of their answers, from the API server's own
// audit log: what a client really sent, whatever it says of itself.
func (c *Cluster) Requests(user string) ([]Request, error) {
	file, err := os.Open(filepath.Join(c.Dir, auditLog))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubetest: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	var found []Request
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return found, nil // a line without its end is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("kubetest: %w", err)
		}
		if !strings.Contains(line, user) {
			continue
		}
		var event auditEvent
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return nil, fmt.Errorf("kubetest: audit log: %w", err)
		}
		if event.counts(user) {
			found = append(found, event.request())
		}
	}
}

type auditEvent struct {
	Stage, Verb, RequestURI string
	User, ImpersonatedUser  struct{ Username string }
	ObjectRef               struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus          struct{ Code int }
}

// counts reports whether the event stands for one request of the user: a watch
// has two stages, of which the first counts.
func (e auditEvent) counts(user string) bool {
	return e.username() == user && (e.Verb == "watch") == (e.Stage == "ResponseStarted")
}

func (e auditEvent) username() string {
	return cmp.Or(e.ImpersonatedUser.Username, e.User.Username)
}

func (e auditEvent) request() Request {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return Request{
		User: e.username(), Verb: e.Verb, Resource: resource, Namespace: e.ObjectRef.Namespace,
		Name: e.ObjectRef.Name, URI: e.RequestURI, Code: e.ResponseStatus.Code,
	}
}
