package webapp_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func newApp(config map[string]string) *webapp.WebApp {
	app := &webapp.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	app.Spec.Image, app.Spec.Replicas, app.Spec.Port, app.Spec.Config = "web:1", 2, 8080, config
	return app
}

func TestChildrenBelongToTheirAppAndFollowItsConfiguration(t *testing.T) {
	t.Parallel()
	kinds := func(app *webapp.WebApp) (kinds []string) {
		for _, child := range webapp.Children(app) {
			require.Equal(t, "u1", string(metav1.GetControllerOf(child).UID))
			kinds = append(kinds, child.GetKind()+" "+child.GetNamespace()+"/"+child.GetName())
		}
		return kinds
	}
	require.Equal(t, []string{"Deployment shop/web", "Service shop/web"}, kinds(newApp(nil)))
	require.Equal(
		t,
		[]string{"Deployment shop/web", "Service shop/web", "ConfigMap shop/web-config"},
		kinds(newApp(map[string]string{"COLOR": "blue"})),
	)
	template := func(color string) any {
		template, found, err := unstructured.NestedFieldNoCopy(
			webapp.Children(newApp(map[string]string{"COLOR": color}))[0].Object,
			"spec",
			"template",
		)
		require.NoError(t, err)
		require.True(t, found)
		return template
	}
	require.Equal(t, template("blue"), template("blue"))
	require.NotEqual(t, template("blue"), template("red"), "another configuration replaces the pods")
}

func TestProgressIsStalledOnlyByWhatARetryCannotCure(t *testing.T) {
	t.Parallel()
	id := apply.ID{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	results := func(action apply.Action, err error) apply.Report {
		return apply.Report{Results: []apply.Result{{ID: id, Action: action, Err: err}}}
	}
	invalid := &apierrors.StatusError{
		ErrStatus: metav1.Status{Message: "is invalid", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity},
	}
	busy := errors.New("busy")
	for _, c := range []struct {
		report apply.Report
		ready  readiness.Status
		err    error
		state  kube.State
		reason string
	}{
		{apply.Report{}, readiness.Current, nil, kube.Ready, "ChildrenReady"},
		{results(apply.Created, nil), readiness.InProgress, nil, kube.Reconciling, "ChildrenNotReady"},
		{apply.Report{}, readiness.Failed, nil, kube.Stalled, "ChildrenNotReady"},
		{results(apply.Failed, busy), readiness.Current, busy, kube.Reconciling, "ChildrenNotApplied"},
		{results(apply.Failed, invalid), readiness.Current, invalid, kube.Stalled, "ChildrenNotApplied"},
		{results(apply.Refused, apply.ErrNotOurs), readiness.Unknown, apply.ErrNotOurs, kube.Stalled, "ChildrenNotApplied"},
	} {
		state, reason, message := webapp.Progress(c.report, map[apply.ID]readiness.Result{id: {Status: c.ready, Message: "why"}}, c.err)
		require.Equal(t, []any{c.state, c.reason}, []any{state, reason})
		require.NotEmpty(t, message)
	}
}

func TestACopySharesNothing(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, webapp.AddToScheme(scheme))
	list := &webapp.List{Items: []webapp.WebApp{*newApp(map[string]string{"COLOR": "blue"})}}
	copied := list.DeepCopyObject().(*webapp.List)
	require.Equal(t, list, copied)
	copied.Items[0].Spec.Config["COLOR"] = "red"
	require.Equal(t, "blue", list.Items[0].Spec.Config["COLOR"])
}
