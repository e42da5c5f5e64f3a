package operator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Site has a ConfigMap for each page. Its mode is how its function of children behaves.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Mode  string   `json:"mode,omitempty"`
		Pages []string `json:"pages,omitempty"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  names: {plural: sites, singular: site, kind: Site, listKind: SiteList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func page(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": name}}
}

func children(_ context.Context, site *Site) ([]operator.Object, error) {
	var pages []operator.Object
	for _, name := range site.Spec.Pages {
		pages = append(pages, page(name))
	}
	extra := page("extra")
	switch site.Spec.Mode {
	case "panics":
		panic("no such page")
	case "fails":
		return nil, reconcile.Terminal(errors.New("no such theme"))
	case "renames":
		site.Namespace, site.Name = "kube-system", "another"
	case "elsewhere":
		extra.Namespace = "kube-system"
	case "twice":
		return append(pages, page("extra"), page("extra")), nil
	case "nil":
		return append(pages, (*corev1.ConfigMap)(nil)), nil
	case "secret":
		return append(pages, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "extra"}}), nil
	case "unknown":
		return append(pages, &Unknown{}), nil
	case "invalid":
		extra.Data["not a key"] = ""
	case "kept":
		extra.Name, extra.Data["kept"] = "extra-"+site.Name, "yes"
	case "role":
		rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/" + site.Name}}}
		return append(pages, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "site-" + site.Name}, Rules: rules}), nil
	case "isolated":
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "site-" + site.Name}}
		policy.Spec.PodSelector.MatchLabels = map[string]string{"site": site.Name}
		return append(pages, policy), nil
	case "flaky":
		if asked.Add(1) < 3 {
			return nil, errors.New("the shop does not answer")
		}
		return pages, nil
	default:
		return pages, nil
	}
	return append(pages, extra), nil
}

// asked counts the calls of the function for sites that are flaky.
var asked atomic.Int32

// Unknown is a type that no scheme knows.
type Unknown struct{ corev1.ConfigMap }

// DeepCopyObject implements runtime.Object.
func (u *Unknown) DeepCopyObject() runtime.Object { c := *u; return &c }

// sites is an operator on a cluster.
type sites struct {
	*testing.T

	cluster  *kubetest.Cluster
	operator *operator.Operator[*Site]
}

func (s *sites) kubectl(args ...string) string {
	s.Helper()
	out, err := s.cluster.Kubectl(s.Context(), args...)
	require.NoError(s, err)
	return out
}

func (s *sites) put(name, mode string, pages ...string) {
	s.Helper()
	require.NoError(s, s.cluster.Apply(s.Context(), fmt.Sprintf(
		"{apiVersion: example.com/v1, kind: Site, metadata: {name: %s, namespace: default}, spec: {mode: %s, pages: [%s]}}",
		name, mode, joined(pages),
	)))
}

func joined(words []string) (text string) {
	for _, word := range words {
		text += word + ","
	}
	return text
}

// condition waits until a condition of a site, of its generation, has this status and reason,
// and returns its message.
func (s *sites) condition(name, kind, want string) (message string) {
	s.Helper()
	format := `jsonpath={.metadata.generation} {.status.conditions[?(@.type=="` + kind + `")]['observedGeneration','status','reason']}`
	var have string
	await.Eventually(s, name+" is "+want, func() bool {
		have = s.kubectl("get", "site", name, "-o", format)
		generation := s.kubectl("get", "site", name, "-o", "jsonpath={.metadata.generation}")
		return have == generation+" "+generation+" "+want
	}, func() string { return have })
	return s.kubectl("get", "site", name, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].message}`)
}

func TestAnOperatorOnARealServer(t *testing.T) {
	t.Parallel()
	s := &sites{t, kubetest.Start(t, kubetest.Options{Controllers: true}), nil}
	require.NoError(t, s.cluster.Apply(t.Context(), definition))
	s.kubectl("wait", "--for=condition=Established", "crd/sites.example.com", "--timeout=300s")
	o := &operator.Operator[*Site]{
		Config: s.cluster.Config, Name: "site-operator", Domain: "example.com", Scheme: scheme.Scheme,
		Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"},
		Owns: []schema.GroupVersionKind{
			{Version: "v1", Kind: "ConfigMap"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		},
		OwnsCluster: []schema.GroupVersionKind{{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}},
		Referenced:  []kube.Kind{{Resource: secrets, Whole: true}}, References: themeOf, ReferencesOf: baseOf,
		Conditions: func(site *Site) *[]metav1.Condition { return &site.Status.Conditions },
		Logger:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	s.operator = o
	var passes, around atomic.Int32
	type trace struct{}
	o.OnPass = func(reconcile.KeyPass[types.NamespacedName]) { passes.Add(1) }
	o.Around = func(ctx context.Context, key types.NamespacedName, pass reconcile.Func) (reconcile.Result, error) {
		around.Add(1)
		return pass(context.WithValue(ctx, trace{}, key))
	}
	o.Children = func(ctx context.Context, site *Site) ([]operator.Object, error) {
		if key := ctx.Value(trace{}); key != (types.NamespacedName{Namespace: site.Namespace, Name: site.Name}) {
			return nil, fmt.Errorf("the pass has the context of %v", key)
		}
		if site.Spec.Mode == "themed" {
			return s.themed(site)
		}
		return children(ctx, site)
	}
	synced, err := o.Synced()
	require.False(t, synced)
	require.EqualError(t, err, "the operator does not run")
	require.Nil(t, o.Reasons())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- o.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, passes.Load(), around.Load(), "Around is called for each pass")
	})
	await.Eventually(t, "it is synced", func() bool { ok, err := o.Synced(); return ok && err == nil })
	require.EqualError(t, o.Start(t.Context()), "operator: site-operator is running already")

	for _, story := range []struct {
		name string
		tell func(*sites)
	}{
		{"pages come, are repaired, and go", (*sites).pages},
		{"what the function does wrong is in the status, and what was made stays", (*sites).wrong},
		{"an object of another is named, and left", (*sites).foreign},
		{"pages go before their site", (*sites).deleted},
		{"a site that the type cannot hold says so, keeps its pages, and can be deleted", (*sites).misfit},
		{"a site loses its last page", (*sites).emptied},
		{"an error that may pass is tried again", (*sites).flaky},
		{"a child without a namespace lives and goes with its site", (*sites).role},
		{"what a site refers to is read, and wakes it", (*sites).theme},
		{"a site waits for the pods that it isolates", (*sites).isolated},
		{"a page that may not be deleted is in the status", (*sites).kept},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(&sites{t, s.cluster, o}) })
	}
	await.Eventually(t, "all are as the stories leave them", func() bool {
		return maps.Equal(o.Reasons(), map[string]int{"Ready": 7, "InvalidChildren": 8, "Claimed": 1})
	}, func() string { return fmt.Sprint(o.Reasons()) })
}

func (s *sites) pages() {
	s.put("good", "fine", "one", "two")
	require.Equal(s, "every child is as stated, and ready", s.condition("good", "Ready", "True Ready"))
	s.condition("good", "Stalled", "False Ready")
	// While nothing else changes: a pass that repairs "one" may otherwise find "two" missing, and say so.
	s.kubectl("delete", "configmap", "two")
	await.Eventually(s, "the deleted page comes back", func() bool {
		return s.kubectl("get", "configmaps", "-l", "example.com/site", "-o", "jsonpath={.items[*].data.text}") == "one two"
	})
	s.kubectl("patch", "configmap", "one", "--field-manager=person", "-p", `{"data":{"text":"other"}}`)
	await.Eventually(s, "it is repaired", func() bool {
		return s.kubectl("get", "configmap", "one", "-o", "jsonpath={.data.text}") == "one"
	})
	s.kubectl("patch", "configmap", "one", "--field-manager=another", "-p", `{"data":{"text":"other"}}`)
	await.Eventually(s, "it is repaired again, beside the other", func() bool {
		return s.kubectl("get", "configmaps", "-l", "example.com/site", "-o", "jsonpath={.items[*].data.text}") == "one two"
	})
	s.put("good", "fine", "two", "three")
	await.Eventually(s, "one has gone", func() bool {
		return s.kubectl("get", "configmaps", "-l", "example.com/site", "-o", "jsonpath={.items[*].data.text}") == "three two"
	})
	s.condition("good", "Ready", "True Ready")
	events := s.kubectl("get", "events.events.k8s.io", "-o",
		`jsonpath={range .items[?(@.regarding.kind=="Site")]}{.reason} {.type} {.reportingController};{end}`)
	all := strings.Split(events, ";")
	slices.Sort(all)
	const undone = "OverrideUndone Normal example.com/site-operator"
	require.Equal(s, []string{"", undone, undone, "Ready Normal example.com/site-operator"}, all,
		"once, for one state, and for what was undone")
	notes := s.kubectl("get", "events.events.k8s.io", "-o", `jsonpath={.items[?(@.reason=="OverrideUndone")].note}`)
	for _, who := range []string{"person", "another"} {
		require.Contains(s, notes, "ConfigMap/default/one: .data.text was changed by "+who+"; set back")
	}
	require.Equal(s, "good", s.kubectl("get", "configmap", "two", "-o", "jsonpath={.metadata.ownerReferences[0].name}"))
}

func (s *sites) wrong() {
	messages := map[string]string{
		"panics":    `panic: no such page`,
		"fails":     `no such theme`,
		"elsewhere": `child 1: ConfigMap "extra": metadata.namespace: is "kube-system", must be "default", where its Site is`,
		"twice":     `ConfigMap/default/extra`,
		"nil":       `child 1: is nil`,
		"secret":    `child 1: Secret "extra": the kind /v1, Kind=Secret is not in Operator.Owns or OwnsCluster`,
		"unknown":   `child 1: *operator_test.Unknown "": Operator.Scheme: no kind is registered`,
	}
	messages["renames"] = "it has changed the namespace, name or UID of the object that it is called for"
	modes := slices.Sorted(maps.Keys(messages))
	for _, mode := range modes {
		s.put(mode, "fine", mode+"-a", mode+"-b")
		s.condition(mode, "Ready", "True Ready")
		s.put(mode, mode, mode+"-a") // the second page is not wanted any more
	}
	for _, mode := range modes {
		require.Contains(s, s.condition(mode, "Stalled", "True InvalidChildren"), messages[mode])
		require.Equal(s, mode+"-b", s.kubectl("get", "configmap", mode+"-b", "-o", "jsonpath={.data.text}"), "nothing is pruned")
	}
	s.put("refused", "invalid", "refused-a")
	require.Contains(s, s.condition("refused", "Stalled", "True Invalid"), "ConfigMap/default/extra: ")
	require.Equal(s, "refused-a", s.kubectl("get", "configmap", "refused-a", "-o", "jsonpath={.data.text}"), "the others are there")
	s.put("refused", "fine", "refused-a")
	s.condition("refused", "Ready", "True Ready")
}

func (s *sites) foreign() {
	s.kubectl("create", "configmap", "mine", "--from-literal=text=my own")
	s.put("foreign", "fine", "mine", "theirs")
	message := s.condition("foreign", "Stalled", "True NotOurs")
	require.Contains(s, message, "ConfigMap/default/mine: ")
	require.NotContains(s, message, "more", "it is one cause")
	require.Equal(s, "my own theirs", s.kubectl("get", "configmaps", "mine", "theirs", "-o", "jsonpath={.items[*].data.text}"))
	s.put("second", "fine", "theirs")
	require.Contains(s, s.condition("second", "Stalled", "True Claimed"), "ConfigMap/default/theirs: ")
	s.kubectl("delete", "configmap", "mine")
	s.condition("foreign", "Ready", "True Ready")
}

func (s *sites) deleted() {
	s.put("going", "fine", "going-a", "going-b")
	s.condition("going", "Ready", "True Ready")
	s.kubectl("patch", "configmap", "going-a", "-p", `{"metadata":{"finalizers":["example.com/slow"]}}`)
	s.kubectl("delete", "site", "going", "--wait=false")
	await.Eventually(s, "the other has gone", func() bool {
		return s.kubectl("get", "configmap", "going-b", "--ignore-not-found") == ""
	})
	require.Equal(s, "ConfigMap/default/going-a: is being deleted, and its finalizers hold it",
		s.condition("going", "Reconciling", "True Terminating"))
	s.kubectl("patch", "configmap", "going-a", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	await.Eventually(s, "the site has gone", func() bool { return s.kubectl("get", "site", "going", "--ignore-not-found") == "" })
}

// A policy has no finalizer that would hold it: the site stays for it, and says so.
func (s *sites) isolated() {
	s.put("isolated", "isolated", "isolated-a")
	s.condition("isolated", "Ready", "True Ready")
	require.NoError(s, s.cluster.Apply(s.Context(), `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {site: isolated}, finalizers: [example.com/slow]}
spec: {containers: [{name: web, image: "web:1"}]}
`))
	s.kubectl("delete", "pod", "web", "--wait=false")
	s.kubectl("delete", "site", "isolated", "--wait=false")
	require.Equal(s, "NetworkPolicy.networking.k8s.io/default/site-isolated: is still needed: pods that it isolates are ending",
		s.condition("isolated", "Reconciling", "True Blocked"))
	require.Equal(s, "site-isolated", s.kubectl("get", "networkpolicies", "-o", "jsonpath={.items[*].metadata.name}"))
	s.kubectl("patch", "pod", "web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	await.Eventually(s, "the site has gone, and its policy", func() bool {
		return s.kubectl("get", "site/isolated", "networkpolicy/site-isolated", "--ignore-not-found") == ""
	})
}
