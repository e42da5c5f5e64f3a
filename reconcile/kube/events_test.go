package kube_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func TestAnEventIsOneThatTheServerTakes(t *testing.T) {
	t.Parallel()
	r := &kube.Events{Controller: "example.com/operator", Instance: "operator-0"}
	e := r.New(corev1.ObjectReference{Kind: "Node", Name: "a"}, corev1.EventTypeWarning, "Why", strings.Repeat("x", 1023)+"é")
	require.Equal(t, "default", e.Namespace, "of a cluster-scoped object")
	require.Equal(t, "a-", e.GenerateName)
	require.Len(t, e.Note, 1023)
	require.True(t, utf8.ValidString(e.Note), "no letter is cut in two")
	require.NotZero(t, e.EventTime)
	require.Equal(t, "example.com/operator", e.ReportingController)
	e = r.New(corev1.ObjectReference{Kind: "Pod", Namespace: "team", Name: "a"}, corev1.EventTypeNormal, "Why", "short")
	require.Equal(t, "team", e.Namespace)
	require.Equal(t, "short", e.Note)
}
