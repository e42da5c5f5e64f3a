package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Board has a ConfigMap for each note.
type Board struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Notes []string `json:"notes,omitempty"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (b *Board) DeepCopyObject() runtime.Object {
	c := *b
	b.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Notes, c.Status.Conditions = slices.Clone(b.Spec.Notes), slices.Clone(b.Status.Conditions)
	return &c
}

// BoardList is what a cache lists.
type BoardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Board `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *BoardList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Board, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Board)
	}
	return &c
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boards.example.com}
spec:
  group: example.com
  names: {plural: boards, singular: board, kind: Board, listKind: BoardList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func boards() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Board"}
}

func knowing(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(boards(), &Board{})
	scheme.AddKnownTypeWithName(boards().GroupVersion().WithKind("BoardList"), &BoardList{})
	metav1.AddToGroupVersion(scheme, boards().GroupVersion())
	return scheme
}

// newOperator returns one whose children are typed and name no kind.
func newOperator(name string) *operator.Operator[*Board] {
	return &operator.Operator[*Board]{
		Name: name, Domain: "example.com", Owns: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		Children: func(_ context.Context, board *Board) (notes []operator.Object, err error) {
			for _, text := range board.Spec.Notes {
				if text == "refuse" {
					return nil, errors.New("no such note")
				}
				note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: board.Name + "-" + text}, Data: map[string]string{"text": text}}
				notes = append(notes, note)
			}
			return notes, nil
		},
		Conditions: func(board *Board) *[]metav1.Condition { return &board.Status.Conditions },
	}
}

// checked is a Manager whose checks of readiness the test asks.
type checked struct {
	manager.Manager

	checks map[string]healthz.Checker
}

func (c *checked) AddReadyzCheck(name string, check healthz.Checker) error {
	c.checks[name] = check
	return c.Manager.AddReadyzCheck(name, check)
}

// ready is what the check of an operator says.
func (c *checked) ready(name string) string {
	if err := c.checks[name](&http.Request{}); err != nil {
		return err.Error()
	}
	return "ready"
}

// elections are as usual, and looked at more often.
func elections(options ctrl.Options) ctrl.Options {
	duration, deadline, period := 15*time.Second, 10*time.Second, time.Second
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, "boards", "default"
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &duration, &deadline, &period
	return options
}

// newManager returns a Manager with an operator.
func newManager(t *testing.T, config *rest.Config, options ctrl.Options, o *operator.Operator[*Board]) *checked {
	t.Helper()
	options.Scheme, options.Metrics = knowing(t), server.Options{BindAddress: "0"}
	options.Logger = logr.FromSlogHandler(testHandler(t))
	made, err := ctrl.NewManager(config, options)
	require.NoError(t, err)
	mgr := &checked{made, map[string]healthz.Checker{}}
	require.NoError(t, controllerruntime.Add(mgr, o))
	return mgr
}

// start runs a Manager until the returned function is called, which returns its error.
func start(t *testing.T, mgr manager.Manager) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// figures are the metrics of the operator without their buckets, in lines.
func figures(t *testing.T) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			switch {
			case labels["operator"] != "board-operator":
			case metric.GetHistogram() != nil:
				require.Positive(t, metric.GetHistogram().GetSampleCount())
				lines = append(lines, family.GetName()+" "+labels["result"])
			default:
				lines = append(lines, fmt.Sprint(family.GetName(), " ", labels["reason"], " ", metric.GetGauge().GetValue()))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// site is a cluster as a user sees it.
type site struct {
	*testing.T

	cluster *kubetest.Cluster
}

func (s *site) kubectl(args ...string) string {
	s.Helper()
	out, err := s.cluster.Kubectl(s.Context(), args...)
	require.NoError(s, err)
	return out
}

func (s *site) put(name string, notes ...string) {
	s.Helper()
	board := "{apiVersion: example.com/v1, kind: Board, metadata: {name: %s, namespace: default}, spec: {notes: [%s]}}"
	require.NoError(s, s.cluster.Apply(s.Context(), fmt.Sprintf(board, name, strings.Join(notes, ", "))))
}

// becomes waits until kubectl prints what is wanted.
func (s *site) becomes(want string, args ...string) {
	s.Helper()
	var have string
	await.Eventually(s, fmt.Sprint(args, " is ", want), func() bool {
		out, err := s.cluster.Kubectl(s.Context(), args...)
		if have = out; err != nil {
			have = err.Error()
		}
		return have == want
	}, func() string { return have })
}
