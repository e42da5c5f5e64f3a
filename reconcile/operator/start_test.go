package operator_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// refusing is a server that refuses all requests.
type refusing struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (s *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.paths[r.URL.Path] = true
	s.mu.Unlock()
	body := `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","message":"no right","code":403}`
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusForbidden, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (s *refusing) asked(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[path]
}

// It watches where its fields say, names what it cannot see, and may be started again.
func TestAnOperatorNamesWhatItCannotSee(t *testing.T) {
	t.Parallel()
	s := &refusing{paths: map[string]bool{}}
	o := &operator.Operator[*Site]{
		Config: &rest.Config{Host: "http://server", Transport: s}, Name: "sites", Domain: "example.com",
		Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"}, Resource: "siten", Namespace: "team",
		Owns:        []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		OwnsCluster: []schema.GroupVersionKind{{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}},
		Children:    children, Conditions: func(site *Site) *[]metav1.Condition { return &site.Status.Conditions },
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- o.Start(ctx) }()
		var unseen string
		await.Eventually(t, "each kind is named", func() bool {
			synced, err := o.Synced()
			unseen = fmt.Sprint(synced, " ", err)
			for _, want := range []string{"false ", "siten", "ConfigMap: ", "ClusterRole.rbac.authorization.k8s.io: ", "no right"} {
				if !strings.Contains(unseen, want) {
					return false
				}
			}
			return true
		}, func() string { return unseen })
		for _, path := range []string{
			"/apis/example.com/v1/namespaces/team/siten", "/api/v1/namespaces/team/configmaps", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		} {
			await.Eventually(t, path+" is asked for", func() bool { return s.asked(path) })
		}
		cancel()
		require.NoError(t, <-done)
	}
}

func TestAnOperatorNamesTheFieldThatIsMissing(t *testing.T) {
	t.Parallel()
	o := &operator.Operator[*Site]{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	next := func(want string) {
		t.Helper()
		require.EqualError(t, o.Start(ended), "operator: Operator."+want)
	}
	next("Config: is required")
	o.Config = &rest.Config{}
	next("Name: is required")
	o.Name = "sites"
	next("Domain: is required")
	o.Domain = "example.com"
	next("Kind: is required")
	o.Kind.Kind = "Site"
	next("Kind: is required")
	o.Kind.Version = "v1"
	next("Owns: is required")
	o.OwnsCluster = []schema.GroupVersionKind{{Version: "v1", Kind: "Node"}}
	next("Children: is required")
	o.Children = children
	next("Conditions: is required")
	o.Conditions = func(site *Site) *[]metav1.Condition { return &site.Status.Conditions }
	o.Outside = &operator.Outside[*Site]{Interval: -1}
	next("Outside.Parts: is required")
	o.Outside.Parts = func(*Site) []*external.Part { return nil }
	next("Outside.Things: is required")
	o.Outside.Things = func(*Site) *[]external.Thing { return nil }
	next("Outside.Interval: is -1ns, must be 0 (5m) or more")
	o.Outside.Interval = 0
	o.Children = nil
	next("Children: is required")
	o.Children, o.OwnsCluster = children, nil
	next("Owns: is required")
	o.Children = nil
	require.NoError(t, o.Validate(), "nothing but things outside")
	o.Domain = "Example.com"
	require.ErrorContains(t, o.Start(ended), `operator: Operator.Domain: is "Example.com", must be a domain such as example.com: `)
	o.Domain = "example.com"
	maps, roles := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, schema.GroupVersionKind{Group: "r", Version: "v1", Kind: "Role"}
	o.Children, o.Outside = children, nil
	kindless, site := schema.GroupVersionKind{Version: "v1"}, schema.GroupVersionKind{Version: "v2", Kind: "Site"}
	for want, wrong := range map[string]func(){
		`Owns[1]: is "/v1, Kind=", must have a version and a kind`:                      func() { o.Owns = append(o.Owns, kindless) },
		`Owns[1]: is ConfigMap as Operator.Owns[0] is, must be another kind`:            func() { o.Owns = append(o.Owns, maps) },
		`OwnsCluster[0]: is ConfigMap as Operator.Owns[0] is, must be another kind`:     func() { o.OwnsCluster = append(o.OwnsCluster, maps) },
		`OwnsCluster[0]: is Site as Operator.Kind is, must be another kind`:             func() { o.OwnsCluster = []schema.GroupVersionKind{site} },
		`Workers: is -1, must be 0 (8) or more`:                                         func() { o.Workers = -1 },
		`Supersedes[1]: is "sites", must be the name of another field manager`:          func() { o.Supersedes = []string{"old", "sites"} },
		`Supersedes[0]: is "", must be the name of another field manager`:               func() { o.Supersedes = []string{""} },
		`Referenced[0].Resource: is "/, Resource=", must have a version and a resource`: func() { o.Referenced = []kube.Kind{{}} },
	} {
		o.Owns, o.OwnsCluster, o.Workers, o.Supersedes, o.Referenced = []schema.GroupVersionKind{maps}, nil, 0, nil, nil
		wrong()
		next(want)
	}
	o.Owns, o.OwnsCluster, o.Workers, o.Supersedes, o.Referenced = []schema.GroupVersionKind{maps, roles}, nil, 0, nil, nil
	o.Resource = "Sites"
	require.ErrorContains(t, o.Start(ended), `operator: Operator.Resource: is "Sites", must be the plural of Kind in lower case: `)
	o.Resource, o.Name = "", "a b"
	require.ErrorContains(t, o.Start(ended), `operator: Operator.Name: is "a b", must be the value of a label: `)
	o.Name = "sites"
	o.Namespace = "Bad NS"
	require.ErrorContains(t, o.Start(ended), `operator: Operator.Namespace: is "Bad NS", must be the name of a namespace, or empty for all: `)
	o.Namespace = "team"
	o.Options = apply.SetOptions{Part: "p"}
	next(`Options.Part: is "p", must be empty: it is set for each object`)
}
