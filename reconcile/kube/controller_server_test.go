//go:build unix

package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.example.com}
spec:
  group: example.com
  names: {plural: %[1]ss, singular: %[1]s, kind: %[2]s}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, format: int64}, secret: {type: string}}
          status:
            type: object
            properties:
              observedGeneration: {type: integer, format: int64}
              phase: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status, reason, message, lastTransitionTime]
                  properties:
                    type: {type: string}
                    status: {type: string}
                    reason: {type: string, minLength: 1}
                    message: {type: string}
                    observedGeneration: {type: integer, format: int64}
                    lastTransitionTime: {type: string, format: date-time}
`

// TestAControllerOnARealServer runs the tests that need one on a single API server: each
// subtest has a namespace and a user of its own.
func TestAControllerOnARealServer(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	require.NoError(t, cluster.Apply(t.Context(), fmt.Sprintf(widgetCRD, "widget", "Widget")))
	_, err := cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=300s")
	require.NoError(t, err)
	for name, test := range map[string]func(*site){
		"an operator converges and is silent then":            operatorSilent,
		"a kind without namespaces owns and goes":             withoutNamespace,
		"an edit reaches its pass":                            latency,
		"a late watch leads to no second child":               lateWatch,
		"a broken and an expired watch lose nothing":          brokenWatch,
		"a kind that is missing is said and found later":      missingKind,
		"a kind that is forbidden is said and found later":    forbiddenKind,
		"a teardown is resumed by another process":            teardownResumed,
		"finalizers of others survive any race":               finalizerRace,
		"a status of several writers keeps all":               statusWriters,
		"a status that the schema does not have is an error":  statusSchema,
		"another view of the children wakes their owner":      otherView,
		"a reference of a reference wakes its users":          referenceChain,
		"of two replicas one is killed and the other replays": replicaKilled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newSite(t, cluster))
		})
	}
}

// site is one subtest: a namespace, a user, and a way to the server that can be
// disturbed.
type site struct {
	t       *testing.T
	cluster *kubetest.Cluster
	ns      string
	config  *rest.Config
	client  dynamic.Interface
	link    *link
}

func newSite(t *testing.T, cluster *kubetest.Cluster) *site {
	t.Helper()
	words := strings.FieldsFunc(strings.ToLower(filepath.Base(t.Name())), func(r rune) bool { return r < 'a' || r > 'z' })
	s := &site{
		t:       t,
		cluster: cluster,
		ns:      strings.Join(words[:min(5, len(words))], "-"),
		config:  rest.CopyConfig(cluster.Config),
		link:    &link{},
	}
	s.config.Impersonate = rest.ImpersonationConfig{UserName: s.ns, Groups: []string{"system:masters"}}
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.link.RoundTripper = next
		return s.link
	})
	var err error
	s.client, err = dynamic.NewForConfig(s.config)
	require.NoError(t, err)
	s.kubectl(t, "create", "namespace", s.ns)
	return s
}

func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

func (s *site) apply(t *testing.T, name string, size int) {
	t.Helper()
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(
		"{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: %s, name: %s}, spec: {size: %d, secret: token}}", s.ns, name, size)))
}

// requests returns the requests of the controller except watches.
func (s *site) requests(t *testing.T) []string {
	t.Helper()
	all, err := s.cluster.Requests(s.ns)
	require.NoError(t, err)
	var list []string
	for _, r := range all {
		if r.Verb != "watch" {
			list = append(list, r.String())
		}
	}
	return list
}

// link is a transport whose watches can be delayed, cut and refused.
type link struct {
	http.RoundTripper

	mu     sync.Mutex
	late   string        // watches of this resource are held back
	resume chan struct{} // closed when they are not any more
	bodies []*body
	gone   atomic.Bool // watches that begin at a version are refused as expired
	down   atomic.Bool
}

func (l *link) delay(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late, l.resume = resource, make(chan struct{})
}

func (l *link) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = ""
	close(l.resume)
}

// cut ends all watches.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bodies {
		_ = b.Close()
	}
	l.bodies = nil
}

func (l *link) held(resource string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late == resource && resource != "" {
		return l.resume
	}
	return nil
}

func (l *link) RoundTrip(request *http.Request) (*http.Response, error) {
	if l.down.Load() {
		return nil, errNetwork
	}
	query := request.URL.Query()
	if query.Get("watch") != "true" {
		return l.RoundTripper.RoundTrip(request)
	}
	if l.gone.Load() && query.Get("resourceVersion") != "" {
		status, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{
				APIVersion: "v1",
				Kind:       "Status",
			},
			Status: "Failure",
			Reason: metav1.StatusReasonExpired,
			Code:   http.StatusGone,
		})
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(string(status))), Request: request,
		}, err
	}
	response, err := l.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		parts := strings.Split(request.URL.Path, "/")
		b := &body{ReadCloser: response.Body, link: l, resource: parts[len(parts)-1], closed: make(chan struct{})}
		response.Body = b
		l.mu.Lock()
		l.bodies = append(l.bodies, b)
		l.mu.Unlock()
	}
	return response, err
}

// body is the body of a watch.
type body struct {
	io.ReadCloser

	link     *link
	resource string
	once     sync.Once
	closed   chan struct{}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if held := b.link.held(b.resource); held != nil {
		select {
		case <-held:
		case <-b.closed:
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// operator has a finalizer, one child of a made-up name, and a status.
func (s *site) operator(t *testing.T) (*kube.Controller[*widget], *atomic.Int64) {
	t.Helper()
	only, err := metadata.NewForConfig(s.config)
	require.NoError(t, err)
	c := &kube.Controller[*widget]{Client: s.client, Metadata: only, Kind: kube.Kind{Resource: widgets, Namespace: s.ns}}
	c.Owned = []kube.Kind{{Resource: maps1, Namespace: s.ns}}
	c.Referenced = []kube.Kind{{Resource: secrets, Namespace: s.ns}}
	c.References = func(o *widget) []kube.Reference {
		return []kube.Reference{{Resource: secrets, Namespace: o.Namespace, Name: o.Spec.Secret}}
	}
	finalizer := &kube.Finalizer{Client: s.client, Resource: widgets, Name: ours, OnWrite: c.Wrote}
	status := &kube.Status[*widget]{Client: s.client, Resource: widgets, OnWrite: c.Wrote}
	passes := &atomic.Int64{}
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		passes.Add(1)
		if o == nil {
			return reconcile.Result{}, nil
		}
		alive, result, err := finalizer.Finalize(ctx, o, func(context.Context) (bool, error) { return true, nil })
		if !alive || err != nil {
			return result, err
		}
		if err := s.ensureChild(ctx, c, o); err != nil {
			return reconcile.Result{}, err
		}
		_, err = c.Lookup(kube.Reference{Resource: secrets, Namespace: o.Namespace, Name: o.Spec.Secret})
		return reconcile.Result{}, status.Update(ctx, o, func(o *widget) {
			if err != nil {
				kube.SetState(&o.Status.Conditions, kube.Reconciling, "SecretMissing", "waiting for secret "+o.Spec.Secret)
				return
			}
			kube.SetState(&o.Status.Conditions, kube.Ready, "Done", fmt.Sprintf("size %d", o.Spec.Size))
		})
	}
	return c, passes
}

func (s *site) ensureChild(ctx context.Context, c *kube.Controller[*widget], o *widget) error {
	children, err := c.Children(o.UID, maps1)
	if err != nil || len(children) > 0 {
		return err
	}
	owner := &unstructured.Unstructured{}
	owner.SetName(o.Name)
	owner.SetUID(o.UID)
	wanted := child("", owner)
	wanted.SetNamespace(s.ns)
	wanted.SetGenerateName(o.Name + "-")
	written, err := s.client.Resource(maps1).Namespace(s.ns).Create(ctx, wanted, metav1.CreateOptions{})
	if err == nil {
		c.WroteChild(kube.KeyOf(o), maps1, written)
	}
	return err
}

func (s *site) children(t *testing.T) int {
	t.Helper()
	list, err := s.client.Resource(maps1).Namespace(s.ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return len(list.Items)
}

func synced(t *testing.T, c *kube.Controller[*widget]) {
	t.Helper()
	await.Eventually(t, "ok && err == nil", func() bool { ok, err := c.Synced(); return ok && err == nil })
}

func operatorSilent(s *site) {
	t := s.t
	c, passes := s.operator(t)
	for i := range 20 {
		s.apply(t, fmt.Sprintf("w%d", i), i)
	}
	stop := run(t, c)
	synced(t, c)
	s.kubectl(t, "wait", "-n", s.ns, "widgets", "--all", "--for=condition=Reconciling", "--timeout=300s")
	s.kubectl(t, "create", "secret", "generic", "token", "-n", s.ns)
	created := time.Now()
	await.Eventually(
		t,
		"!slices.ContainsFunc(list, func(o *widget) bool { return !meta.IsStatusConditionTrue(o.Status.Conditions, string(kube.Ready)) })",
		func() bool {
			list, err := c.List(s.ns)
			require.NoError(t, err)
			return !slices.ContainsFunc(list, func(o *widget) bool { return !meta.IsStatusConditionTrue(o.Status.Conditions, string(kube.Ready)) })
		},
	)
	t.Logf("20 users of a secret were ready %v after its creation, one by one", time.Since(created))
	s.kubectl(t, "wait", "-n", s.ns, "widgets", "--all", "--for=condition=Ready", "--timeout=300s")
	o, err := c.Get(keyOf(s.ns, "w7"))
	require.NoError(t, err)
	require.Equal(t, o.Generation, o.Status.ObservedGeneration)
	require.Equal(t, []string{ours}, o.Finalizers)

	quiet(t, passes)
	before, count := s.requests(t), passes.Load()
	time.Sleep(3 * time.Second)
	require.Empty(t, s.requests(t)[len(before):], "at rest nothing is asked")
	require.Equal(t, count, passes.Load())
	require.NoError(t, stop())

	stop = run(t, c)
	synced(t, c)
	await.Eventually(t, "passes.Load() >= count+20", func() bool { return passes.Load() >= count+20 })
	quiet(t, passes)
	for _, request := range s.requests(t)[len(before):] {
		require.True(t, strings.HasPrefix(request, "list "), "a restart writes nothing: %s", request)
	}
	s.kubectl(t, "delete", "widgets", "-n", s.ns, "--all", "--timeout=30s")
	await.Eventually(t, `len(c.Keys("")) == 0`, func() bool { return len(c.Keys("")) == 0 })
	require.NoError(t, stop())
	t.Logf("%d passes in all, %d requests", passes.Load(), len(s.requests(t)))
}

// latency edits one of 200 objects again and again.
func latency(s *site) {
	t := s.t
	var objects []string
	for i := range 200 {
		objects = append(
			objects,
			fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: %s, name: w%d}, spec: {size: 0}}", s.ns, i),
		)
	}
	require.NoError(t, s.cluster.Apply(t.Context(), strings.Join(objects, "\n---\n")))
	seen := make(chan int64, 1000)
	c := &kube.Controller[*widget]{Client: s.client, Kind: kube.Kind{Resource: widgets, Namespace: s.ns}}
	c.Reconcile = func(_ context.Context, _ types.NamespacedName, o *widget) (reconcile.Result, error) {
		seen <- o.Spec.Size
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	for range 200 {
		<-seen
	}
	var took []time.Duration
	resource := s.client.Resource(widgets).Namespace(s.ns)
	for i := range int64(200) {
		_, err := resource.Patch(
			t.Context(),
			fmt.Sprintf("w%d", i),
			types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"size":%d}}`, i+1),
			metav1.PatchOptions{},
		)
		answered := time.Now()
		require.NoError(t, err)
		require.Equal(t, i+1, <-seen)
		took = append(took, max(0, time.Since(answered)))
	}
	slices.Sort(took)
	t.Logf("from the server's answer to an edit to the pass: p50 %v, p99 %v", took[100], took[198])
	require.Less(t, took[100], time.Second)
	require.NoError(t, stop())
}

// withoutNamespace has ClusterRoles for owners, chosen by label, of a ConfigMap.
func withoutNamespace(s *site) {
	t := s.t
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	s.kubectl(t, "create", "clusterrole", s.ns, "--verb=get", "--resource=pods")
	s.kubectl(t, "label", "clusterrole", s.ns, "pool="+s.ns)
	c := &kube.Controller[*unstructured.Unstructured]{Client: s.client, Kind: kube.Kind{Resource: roles, LabelSelector: "pool=" + s.ns}}
	c.Owned = []kube.Kind{{Resource: maps1, Namespace: s.ns, Whole: true}}
	finalizer := &kube.Finalizer{Client: s.client, Resource: roles, Name: ours, OnWrite: c.Wrote}
	var absent atomic.Bool
	data := make(chan string, 100)
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, o *unstructured.Unstructured) (reconcile.Result, error) {
		if o == nil {
			absent.Store(true)
			return reconcile.Result{}, nil
		}
		alive, result, err := finalizer.Finalize(ctx, o, func(context.Context) (bool, error) { return true, nil })
		if !alive || err != nil {
			return result, err
		}
		children, err := c.Children(o.GetUID(), maps1)
		if err != nil || len(children) > 0 {
			for _, each := range children {
				content, _, _ := unstructured.NestedString(each.Object, "data", "a")
				data <- key.String() + " " + content
			}
			return reconcile.Result{}, err
		}
		wanted := child("", o)
		wanted.SetNamespace(s.ns)
		wanted.SetGenerateName("child-")
		written, err := s.client.Resource(maps1).Namespace(s.ns).Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil {
			c.WroteChild(key, maps1, written)
		}
		return result, err
	}
	stop := run(t, c)
	require.Equal(t, "/"+s.ns+" b", <-data)
	require.Len(t, c.Keys(""), 1, "the label chooses")
	name := s.kubectl(t, "get", "configmaps", "-n", s.ns, "-o", "jsonpath={.items[*].metadata.name}")
	s.kubectl(t, "patch", "configmap", name, "-n", s.ns, "--type=merge", "-p", `{"data":{"a":"c"}}`)
	await.Eventually(t, `<-data == "/"+s.ns+" c"`, func() bool { return <-data == "/"+s.ns+" c" })
	s.kubectl(t, "label", "clusterrole", s.ns, "pool-")
	await.Eventually(t, "what is not selected is absent", absent.Load)
	s.kubectl(t, "label", "clusterrole", s.ns, "pool="+s.ns)
	s.kubectl(t, "delete", "clusterrole", s.ns, "--timeout=20s")
	require.NoError(t, stop())
}

// referenceChain has two objects refer to a ConfigMap, which names a Secret.
func referenceChain(s *site) {
	t := s.t
	s.apply(t, "a", 1)
	s.apply(t, "b", 1)
	only, err := metadata.NewForConfig(s.config)
	require.NoError(t, err)
	c := &kube.Controller[*widget]{Client: s.client, Metadata: only, Kind: kube.Kind{Resource: widgets, Namespace: s.ns}}
	c.Referenced = []kube.Kind{{Resource: maps1, Namespace: s.ns, Whole: true}, {Resource: secrets, Namespace: s.ns}}
	config := kube.Reference{Resource: maps1, Namespace: s.ns, Name: "token"} // named by the spec
	key := kube.Reference{Resource: secrets, Namespace: s.ns, Name: "key"}
	c.References = func(*widget) []kube.Reference { return []kube.Reference{config} }
	c.ReferencesOf = func(_ kube.Reference, o *unstructured.Unstructured) []kube.Reference {
		name, _, _ := unstructured.NestedString(o.Object, "data", "secret")
		return []kube.Reference{{Resource: secrets, Namespace: o.GetNamespace(), Name: name}}
	}
	var passes atomic.Int64
	seen := make(chan string, 1000)
	c.Reconcile = func(_ context.Context, k types.NamespacedName, _ *widget) (reconcile.Result, error) {
		passes.Add(1)
		state := k.Name + " without config"
		if o, err := c.Lookup(config); err == nil {
			name, _, _ := unstructured.NestedString(o.Object, "data", "secret")
			state = k.Name + " without " + name
			if found, err := c.Lookup(kube.Reference{Resource: secrets, Namespace: s.ns, Name: name}); err == nil {
				state = k.Name + " with " + name + found.GetLabels()["round"]
			}
		}
		seen <- state
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	both := func(state string) {
		t.Helper()
		require.ElementsMatch(t, []string{"a " + state, "b " + state}, []string{<-seen, <-seen})
		quiet(t, &passes)
		require.Empty(t, seen, "one pass each")
	}
	both("without config")
	s.kubectl(t, "create", "configmap", "token", "-n", s.ns, "--from-literal=secret=key")
	both("without key")
	s.kubectl(t, "create", "secret", "generic", "key", "-n", s.ns)
	both("with key")
	require.Equal(t, []types.NamespacedName{keyOf(s.ns, "a"), keyOf(s.ns, "b")}, c.Users(key))
	s.kubectl(t, "label", "secret", "key", "-n", s.ns, "round=2")
	both("with key2")
	s.kubectl(t, "create", "secret", "generic", "unused", "-n", s.ns)
	s.kubectl(t, "create", "configmap", "unused", "-n", s.ns, "--from-literal=secret=key")
	s.kubectl(t, "patch", "configmap", "token", "-n", s.ns, "--type=merge", "-p", `{"data":{"secret":"other"}}`)
	both("without other")
	s.kubectl(t, "delete", "secret", "key", "-n", s.ns)
	quiet(t, &passes)
	require.Empty(t, seen, "it is referred to no more")
	s.kubectl(t, "create", "secret", "generic", "other", "-n", s.ns)
	both("with other")
	s.kubectl(t, "delete", "secret", "other", "-n", s.ns)
	both("without other")
	s.kubectl(t, "delete", "configmap", "token", "-n", s.ns)
	both("without config")
	require.NoError(t, stop())
}

// otherView has the children watched beside the Controller, which is woken by the
// UID of their owner, also when a child is deleted.
func otherView(s *site) {
	t := s.t
	s.apply(t, "a", 1)
	s.apply(t, "b", 1)
	c := &kube.Controller[*widget]{Client: s.client, Kind: kube.Kind{Resource: widgets, Namespace: s.ns}}
	view := viewChildren(s.client, s.ns, c.AddUID)
	var passes atomic.Int64
	resource := s.client.Resource(maps1).Namespace(s.ns)
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		passes.Add(1)
		if o == nil || len(view.children(o.UID)) > 0 {
			return reconcile.Result{}, nil
		}
		owner := &unstructured.Unstructured{}
		owner.SetName(o.Name)
		owner.SetUID(o.UID)
		wanted := child(key.Name, owner)
		wanted.SetNamespace(s.ns)
		_, err := resource.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil // the view does not show it yet, and reports it when it does
		}
		return reconcile.Result{}, err
	}
	stop, stopView := run(t, c), run(t, view)
	exists := func(name, uid string) func() bool {
		return func() bool {
			found, err := resource.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && string(found.GetUID()) != uid
		}
	}
	await.Eventually(t, `exists("a", "")`, exists("a", ""))
	await.Eventually(t, `exists("b", "")`, exists("b", ""))
	for range 3 {
		quiet(t, &passes)
		old := s.kubectl(t, "get", "configmap", "a", "-n", s.ns, "-o", "jsonpath={.metadata.uid}")
		s.kubectl(t, "delete", "configmap", "a", "-n", s.ns)
		await.Eventually(t, "a deleted child wakes its owner", exists("a", old))
	}
	quiet(t, &passes)
	before := passes.Load()
	s.kubectl(t, "label", "configmap", "b", "-n", s.ns, "seen=yes")
	await.Eventually(t, "passes.Load() > before", func() bool { return passes.Load() > before })
	quiet(t, &passes)
	require.Equal(t, before+1, passes.Load(), "one change wakes one owner, once")

	o, err := c.Get(keyOf(s.ns, "b"))
	require.NoError(t, err)
	s.kubectl(t, "delete", "widget", "b", "-n", s.ns, "--timeout=30s")
	s.apply(t, "b", 2)
	await.Eventually(
		t,
		"err == nil && next.UID != o.UID",
		func() bool { next, err := c.Get(keyOf(s.ns, "b")); return err == nil && next.UID != o.UID },
	)
	quiet(t, &passes)
	before = passes.Load()
	c.AddUID(o.UID)
	quiet(t, &passes)
	require.Equal(t, before, passes.Load(), "the UID of a predecessor names nothing")
	require.NoError(t, stopView())
	require.NoError(t, stop())
}

// quiet waits until there were no passes for half a second.
func quiet(t *testing.T, passes *atomic.Int64) {
	t.Helper()
	for last := int64(-1); last != passes.Load(); time.Sleep(500 * time.Millisecond) {
		last = passes.Load()
	}
}

func lateWatch(s *site) {
	t := s.t
	c, passes := s.operator(t)
	stop := run(t, c)
	synced(t, c)
	s.link.delay("configmaps")
	s.apply(t, "a", 0)
	await.Eventually(
		t,
		"the first pass has made the child and written the status",
		func() bool { o, err := c.Get(keyOf(s.ns, "a")); return err == nil && o.Status.ObservedGeneration == 1 },
	)
	for i := range 10 {
		s.apply(t, "a", i+1)
		time.Sleep(50 * time.Millisecond)
	}
	require.Equal(t, 1, s.children(t))
	require.EqualValues(t, 1, passes.Load())
	s.link.hurry()
	await.Until(
		t,
		20*time.Second,
		"err == nil && o.Status.ObservedGeneration == 11",
		func() bool { o, err := c.Get(keyOf(s.ns, "a")); return err == nil && o.Status.ObservedGeneration == 11 },
	)
	require.Equal(t, 1, s.children(t))
	require.NoError(t, stop())
}

func brokenWatch(s *site) {
	t := s.t
	c, _ := s.operator(t)
	stop := run(t, c)
	synced(t, c)
	s.kubectl(t, "create", "secret", "generic", "token", "-n", s.ns)
	for round := range 4 {
		for i := range 3 {
			s.apply(t, fmt.Sprintf("w%d", i), 10*round+i)
		}
		s.link.gone.Store(round == 2)
		s.link.cut()
		s.kubectl(t, "delete", "widget", "w0", "-n", s.ns, "--wait=false")
		s.kubectl(t, "delete", "configmaps", "-n", s.ns, "--all")
		time.Sleep(300 * time.Millisecond)
		s.link.gone.Store(false)
		await.Until(t, 40*time.Second, "len(list) == 2 && s.children(t) >= 2", func() bool {
			list, err := c.List(s.ns)
			require.NoError(t, err)
			for _, o := range list {
				if o.Status.ObservedGeneration != o.Generation {
					return false
				}
			}
			return len(list) == 2 && s.children(t) >= 2
		})
	}
	require.NoError(t, stop())
}

func missingKind(s *site) {
	t := s.t
	gadgets := widgets
	gadgets.Resource = "gadgets"
	var log logbook
	passes := make(chan string, 10)
	c := &kube.Controller[*widget]{Client: s.client, Kind: kube.Kind{Resource: gadgets}, Logger: textLogger(&log)}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
		passes <- key.Name
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	await.Until(t, 20*time.Second, `err != nil && strings.Contains(err.Error(), "could not find the requested resource")`, func() bool {
		_, err := c.Synced()
		return err != nil && strings.Contains(err.Error(), "could not find the requested resource")
	})
	require.Contains(
		t,
		log.String(),
		`msg="watch failed" controller=gadgets.example.com kind=gadgets.example.com error="the server could not find the requested resource"`,
	)
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(widgetCRD, "gadget", "Gadget")))
	s.kubectl(t, "wait", "--for=condition=Established", "crd/gadgets.example.com", "--timeout=300s")
	require.NoError(
		t,
		s.cluster.Apply(t.Context(), fmt.Sprintf("{apiVersion: example.com/v1, kind: Gadget, metadata: {namespace: %s, name: g}}", s.ns)),
	)
	require.Equal(t, "g", <-passes)
	synced(t, c)
	require.NoError(t, stop())
}

func forbiddenKind(s *site) {
	t := s.t
	s.kubectl(t, "create", "serviceaccount", "operator", "-n", s.ns)
	config, _, err := s.cluster.ServiceAccount(t.Context(), s.ns, "operator")
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	grant := func(name, resource string) {
		s.kubectl(t, "create", "role", name, "-n", s.ns, "--verb=list,watch", "--resource="+resource)
		s.kubectl(t, "create", "rolebinding", name, "-n", s.ns, "--role="+name, "--serviceaccount="+s.ns+":operator")
	}
	grant("widgets", "widgets.example.com")
	s.apply(t, "a", 1)
	c, _ := s.operator(t)
	c.Client, c.Metadata, c.Owned = client, nil, nil
	passes := make(chan string, 10)
	c.Reconcile = func(_ context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
		passes <- key.Name
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	await.Until(
		t,
		20*time.Second,
		`err != nil && strings.Contains(err.Error(), "secrets: not synced yet: secrets is forbidden")`,
		func() bool {
			_, err := c.Synced()
			return err != nil && strings.Contains(err.Error(), "secrets: not synced yet: secrets is forbidden")
		},
	)
	require.Empty(t, passes)
	grant("secrets", "secrets")
	require.Equal(t, "a", <-passes, "list and watch are all that a controller needs")
	require.NoError(t, stop())
}

func teardownResumed(s *site) {
	t := s.t
	s.apply(t, "a", 1)
	finalizer := &kube.Finalizer{Client: s.client, Resource: widgets, Name: ours, Poll: 20 * time.Millisecond}
	var outside, failing atomic.Bool
	var order logbook
	operator := func() *kube.Controller[*widget] {
		c := &kube.Controller[*widget]{
			Client:  s.client,
			Kind:    kube.Kind{Resource: widgets, Namespace: s.ns},
			Backoff: reconcile.Backoff{Min: 20 * time.Millisecond},
		}
		c.Reconcile = func(ctx context.Context, _ types.NamespacedName, o *widget) (reconcile.Result, error) {
			if o == nil {
				return reconcile.Result{}, nil
			}
			looks := 0
			alive, result, err := finalizer.Finalize(ctx, o, func(context.Context) (bool, error) {
				if failing.Load() {
					return false, errNetwork
				}
				outside.Store(false)
				looks++
				return looks > 0, nil
			})
			if alive && err == nil {
				current, err := s.client.Resource(widgets).Namespace(s.ns).Get(ctx, "a", metav1.GetOptions{})
				if err != nil {
					return result, err // it was stopped in between
				}
				if !slices.Contains(current.GetFinalizers(), ours) {
					_, _ = order.Write([]byte("effect before finalizer"))
				}
				outside.Store(true)
			}
			return result, err
		}
		return c
	}
	stop := run(t, operator())
	await.Eventually(t, "outside.Load", outside.Load)
	require.NoError(t, stop())
	s.kubectl(t, "delete", "widget", "a", "-n", s.ns, "--wait=false")
	failing.Store(true)
	stop = run(t, operator())
	time.Sleep(time.Second)
	require.Equal(
		t,
		"a",
		s.kubectl(t, "get", "widgets", "-n", s.ns, "-o", "jsonpath={.items[*].metadata.name}"),
		"a teardown that fails keeps it",
	)
	require.True(t, outside.Load())
	failing.Store(false)
	await.Eventually(
		t,
		`s.kubectl(t, "get", "widgets", "-n", s.ns, "-o", "name") == ""`,
		func() bool { return s.kubectl(t, "get", "widgets", "-n", s.ns, "-o", "name") == "" },
	)
	require.False(t, outside.Load())
	require.Empty(t, order.String())
	require.NoError(t, stop())
}

// finalizerRace has several writers add and remove finalizers at the same time.
func finalizerRace(s *site) {
	t := s.t
	s.apply(t, "a", 1)
	resource := s.client.Resource(widgets).Namespace(s.ns)
	names := []string{"a.example.com/x", "b.example.com/x", "c.example.com/x", "d.example.com/x"}
	var writers sync.WaitGroup
	for _, name := range names {
		writers.Go(func() {
			f := &kube.Finalizer{Client: s.client, Resource: widgets, Name: name}
			for {
				o, err := resource.Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					return
				}
				if alive, _, err := f.Finalize(t.Context(), o, func(context.Context) (bool, error) { return true, nil }); err == nil && alive {
					return
				}
			}
		})
	}
	writers.Wait()
	require.ElementsMatch(t, names, strings.Fields(s.kubectl(t, "get", "widget", "a", "-n", s.ns, "-o", "jsonpath={.metadata.finalizers[*]}")))
	s.kubectl(t, "delete", "widget", "a", "-n", s.ns, "--wait=false")
	o, err := resource.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	for i, name := range names {
		stale := o.DeepCopy() // each sees the others that have gone by now
		f := &kube.Finalizer{Client: s.client, Resource: widgets, Name: name}
		alive, _, err := f.Finalize(t.Context(), stale, func(context.Context) (bool, error) { return true, nil })
		require.NoError(t, err)
		require.False(t, alive)
		left := s.kubectl(t, "get", "widgets", "-n", s.ns, "-o", "jsonpath={.items[*].metadata.finalizers[*]}")
		require.ElementsMatch(t, names[i+1:], strings.Fields(left))
	}
	newcomer := &kube.Finalizer{Client: s.client, Resource: widgets, Name: ours}
	before := o.DeepCopy()
	before.SetDeletionTimestamp(nil)
	alive, _, err := newcomer.Finalize(t.Context(), before, never(t))
	require.NoError(t, err)
	require.False(t, alive, "already gone is success")

	s.apply(t, "b", 1)
	o, err = resource.Get(t.Context(), "b", metav1.GetOptions{})
	require.NoError(t, err)
	other := &kube.Finalizer{Client: s.client, Resource: widgets, Name: names[0]}
	_, _, err = other.Finalize(t.Context(), o.DeepCopy(), never(t))
	require.NoError(t, err)
	s.kubectl(t, "delete", "widget", "b", "-n", s.ns, "--wait=false")
	alive, _, err = newcomer.Finalize(t.Context(), o, never(t))
	require.NoError(t, err)
	require.False(t, alive, "none can be added to what is being deleted")
}

// statusWriters has several writers, each with a condition of its own, and one
// that edits the spec. The order of the versions shows that no write takes back
// that of another.
func statusWriters(s *site) {
	t := s.t
	const rounds = 20
	s.apply(t, "a", 1)
	resource := s.client.Resource(widgets).Namespace(s.ns)
	kinds := []string{"One", "Two", "Three"}
	var mu sync.Mutex
	written := map[string]map[string]string{} // by version: the round of each condition
	var writers sync.WaitGroup
	for _, kind := range kinds {
		writers.Go(func() {
			wrote := false
			status := &kube.Status[*widget]{Client: s.client, Resource: widgets, Conditions: []string{kind}, OnWrite: func(object metav1.Object) {
				wrote = true
				mu.Lock()
				defer mu.Unlock()
				o, _ := object.(*widget)
				written[o.ResourceVersion] = messages(o)
			}}
			for i := 0; i < rounds && t.Context().Err() == nil; {
				round := fmt.Sprint(i)
				o, err := readWidget(t.Context(), resource, "a")
				if err != nil {
					continue
				}
				generation := o.Generation
				if wrote = messages(o)[kind] == round; !wrote { // else the answer was lost
					err = status.Update(t.Context(), o, func(o *widget) {
						o.Status.Conditions = nil
						kube.SetCondition(&o.Status.Conditions, kind, metav1.ConditionTrue, "Round", round)
					})
				}
				if wrote {
					i++
				} else if after, getErr := readWidget(t.Context(), resource, "a"); err == nil && getErr == nil {
					// The generation of the object does not show it: it may have been
					// read again.
					assert.NotEqual(t, round, messages(o)[kind], "the object has what was not written")
					assert.Greater(t, after.Status.ObservedGeneration, generation, "a status is left alone only if its generation is over")
				}
			}
		})
	}
	for i := range 5 {
		s.apply(t, "a", i+2)
	}
	writers.Wait()
	require.Equal(t, "One=19 Three=19 Two=19", s.kubectl(t, "get", "widget", "a", "-n", s.ns, "-o",
		`jsonpath={range .status.conditions[*]}{.type}={.message} {end}`))
	versions := slices.SortedFunc(maps.Keys(written), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	last := map[string]int{}
	for _, version := range versions {
		for kind, round := range written[version] {
			n, err := strconv.Atoi(round)
			require.NoError(t, err)
			require.Contains(t, []int{last[kind], last[kind] + 1}, n, "%s at version %s of %v", kind, version, written)
			last[kind] = n
		}
		require.Len(t, written[version], len(last), "no condition goes: version %s of %v", version, written)
	}

	got, err := resource.Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	status := &kube.Status[*unstructured.Unstructured]{Client: s.client, Resource: widgets}
	set := func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
	}
	require.NoError(t, status.Update(t.Context(), got, set))
	sent := len(s.requests(t))
	require.NoError(t, status.Update(t.Context(), got, set))
	require.Len(t, s.requests(t), sent)
}

func readWidget(ctx context.Context, resource dynamic.ResourceInterface, name string) (*widget, error) {
	got, err := resource.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	o := &widget{}
	return o, json.Unmarshal(data, o)
}

// messages returns the messages of the conditions by type.
func messages(o *widget) map[string]string {
	all := map[string]string{}
	for _, c := range o.Status.Conditions {
		all[c.Type] = c.Message
	}
	return all
}

func statusSchema(s *site) {
	t := s.t
	s.apply(t, "a", 1)
	got, err := s.client.Resource(widgets).Namespace(s.ns).Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	status := &kube.Status[*unstructured.Unstructured]{Client: s.client, Resource: widgets}
	require.NoError(t, status.Update(t.Context(), got, func(*unstructured.Unstructured) {}))
	err = status.Update(t.Context(), got, func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, "x", "status", "unheardOf")
	})
	require.ErrorContains(t, err, `the server dropped all written fields; its schema may lack them: {"unheardOf":"x"}`)

	configMap := &kube.Status[*unstructured.Unstructured]{Client: s.client, Resource: maps1}
	plain := child("plain", got)
	plain.SetNamespace(s.ns)
	written, err := s.client.Resource(maps1).Namespace(s.ns).Create(t.Context(), plain, metav1.CreateOptions{})
	require.NoError(t, err)
	err = configMap.Update(t.Context(), written, func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, "x", "status", "phase")
	})
	require.ErrorContains(t, err, "the resource has no status subresource")
}

// replicaKilled runs two processes; the one that works is killed.
func replicaKilled(s *site) {
	t := s.t
	const count = 20
	for i := range count {
		s.apply(t, fmt.Sprintf("w%d", i), i)
	}
	file := filepath.Join(t.TempDir(), "passes")
	start := func(who string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReplicaProcess$")
		cmd.Env = append(
			os.Environ(),
			"REPLICA="+strings.Join([]string{s.cluster.Config.Host, s.cluster.Config.BearerToken, s.cluster.Config.CAFile, s.ns, file, who}, "\t"),
		)
		_, err := cmd.StdinPipe() // it ends when this process does
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	reconciled := func(who string) func() bool {
		return func() bool {
			data, _ := os.ReadFile(file)
			seen := map[string]bool{}
			for line := range strings.Lines(string(data)) {
				if by, name, _ := strings.Cut(strings.TrimSpace(line), " "); by == who {
					seen[name] = true
				}
			}
			return len(seen) == count
		}
	}
	a := start("a")
	await.Eventually(t, `reconciled("a")`, reconciled("a"))
	start("b")
	time.Sleep(time.Second)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(data), "b ")
	require.NoError(t, a.Process.Kill())
	at := time.Now()
	await.Eventually(t, "everything is looked at again", reconciled("b"))
	t.Logf("%d objects were replayed %v after the kill, with a lease of %v", count, time.Since(at), duration)
	require.Equal(t, count, s.children(t), "none was made twice")
}

// TestReplicaProcess is the program of the processes, and no test.
func TestReplicaProcess(t *testing.T) {
	args := strings.Split(os.Getenv("REPLICA"), "\t")
	if len(args) != 6 {
		t.Skip("is the program of other tests")
	}
	s := &site{
		ns:     args[3],
		config: &rest.Config{Host: args[0], BearerToken: args[1], TLSClientConfig: rest.TLSClientConfig{CAFile: args[2]}, QPS: -1},
	}
	var err error
	s.client, err = dynamic.NewForConfig(s.config)
	require.NoError(t, err)
	out, err := os.OpenFile(args[4], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer out.Close()
	c, _ := s.operator(t)
	plain := c.Reconcile
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		result, err := plain(ctx, key, o)
		_, _ = fmt.Fprintf(out, "%s %s\n", args[5], key.Name)
		return result, err
	}
	lease := &kube.Lease{
		Client: s.client, Namespace: s.ns, Name: "operator", Identity: args[5],
		Duration: duration, RenewDeadline: deadline, RetryPeriod: period, Starter: c,
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	require.NoError(t, lease.Start(ctx))
}
