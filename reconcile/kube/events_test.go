package kube_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func TestAnEventIsOneThatTheServerTakes(t *testing.T) {
	t.Parallel()
	r := &kube.Events{Controller: "example.com/operator", Instance: "operator-0"}
	event := func(kind string, about *metav1.ObjectMeta, eventType, note string) (e eventsv1.Event) {
		t.Helper()
		made := r.New(schema.GroupVersionKind{Version: "v1", Kind: kind}, about, eventType, "Why", note)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(made.Object, &e, true))
		return e
	}
	e := event("Node", &metav1.ObjectMeta{Name: "a", UID: "u"}, kube.EventWarning, strings.Repeat("x", 1023)+"é")
	require.Equal(t, "default", e.Namespace, "of a cluster-scoped object")
	require.Empty(t, e.Regarding.Namespace)
	require.Equal(t, "a-", e.GenerateName)
	require.Len(t, e.Note, 1023)
	require.True(t, utf8.ValidString(e.Note), "no letter is cut in two")
	require.NotZero(t, e.EventTime)
	require.Equal(t, "example.com/operator", e.ReportingController)
	e = event("Pod", &metav1.ObjectMeta{Namespace: "team", Name: "a", ResourceVersion: "7"}, kube.EventNormal, "short")
	require.Equal(t, "team", e.Namespace)
	require.Equal(t, "team", e.Regarding.Namespace)
	require.Equal(t, "7", e.Regarding.ResourceVersion)
	require.Equal(t, "short", e.Note)
}
