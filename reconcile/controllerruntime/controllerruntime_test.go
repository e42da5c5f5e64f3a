package controllerruntime_test

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // each Manager has one of its own
	os.Exit(m.Run())
}

func testHandler(t *testing.T) slog.Handler {
	t.Helper()
	return slog.NewTextHandler(t.Output(), nil)
}

var texts = []string{"get", "configmaps", "-l", "example.com/board", "-o", "jsonpath={.items[*].data.text}"}

func TestAnOperatorWorksWhileItsManagerIsElected(t *testing.T) {
	t.Parallel()
	s := &site{t, kubetest.Start(t, kubetest.Options{})}
	require.NoError(t, s.cluster.Apply(t.Context(), definition))
	s.kubectl("wait", "--for=condition=Established", "crd/boards.example.com", "--timeout=300s")
	s.put("one", "a", "b")
	s.put("two", "refuse")

	// It works, and says so.
	passed := make(chan struct{}, 1000)
	o := newOperator("board-operator")
	o.OnPass = func(reconcile.KeyPass[types.NamespacedName]) { passed <- struct{}{} }
	first := newManager(t, s.cluster.Config, elections(ctrl.Options{}), o)
	require.Equal(t, "ready", first.ready("board-operator"), "a standby is ready")
	require.Empty(t, figures(t), "and has no figures")
	stop := start(t, first)
	s.becomes("a b", texts...)
	await.Eventually(t, "it is ready", func() bool { return first.ready("board-operator") == "ready" })
	const working = "trueup_operator_objects InvalidChildren 1\ntrueup_operator_objects Ready 1\n" +
		"trueup_operator_pass_duration_seconds error\ntrueup_operator_pass_duration_seconds success"
	await.Eventually(t, "both have a reason", func() bool { return figures(t) == working },
		func() string { return figures(t) })
	require.NotEmpty(t, passed, "what the program had as OnPass is called, too")
	s.becomes("Ready Normal example.com/board-operator;", "get", "events.events.k8s.io", "-o",
		`jsonpath={range .items[?(@.regarding.name=="one")]}{.reason} {.type} {.reportingController};{end}`)

	// A child that is deleted or edited by hand comes back.
	s.kubectl("delete", "configmap", "one-a")
	s.becomes("a b", texts...)
	s.kubectl("patch", "configmap", "one-b", "-p", `{"data":{"text":"other"}}`)
	s.becomes("a b", texts...)

	// A standby waits.
	second := newManager(t, s.cluster.Config, elections(ctrl.Options{}), newOperator("board-operator"))
	stopSecond := start(t, second)

	// The election is lost, and with it the operator and its figures.
	thief := `{"spec":{"holderIdentity":"thief","leaseDurationSeconds":3600}}`
	s.kubectl("patch", "lease", "boards", "--type=merge", "-p", thief)
	await.Eventually(t, "the figures have gone", func() bool { return figures(t) == "" })
	require.ErrorContains(t, stop(), "leader election lost")
	require.Equal(t, "the operator does not run", first.ready("board-operator"))
	s.kubectl("delete", "configmap", "one-a")
	require.Equal(t, "ready", second.ready("board-operator"))
	require.Equal(t, "b", s.kubectl(texts...), "as long as no Manager is elected")

	// Another one takes it.
	s.put("two", "c")
	s.kubectl("patch", "lease", "boards", "--type=merge", "-p", `{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`)
	s.becomes("a b c", texts...)
	const again = "trueup_operator_objects Ready 2\ntrueup_operator_pass_duration_seconds success"
	await.Eventually(t, "no failure of before is counted", func() bool { return figures(t) == again },
		func() string { return figures(t) })
	s.kubectl("delete", "board", "one")
	s.becomes("c", texts...)
	require.NoError(t, stopSecond())
	require.Empty(t, figures(t))
}

// The operator may list nothing.
func TestReadinessNamesWhatIsNotSeenYet(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it waits for repetitions")
	}
	t.Parallel()
	s := &site{t, kubetest.Start(t, kubetest.Options{})}
	s.kubectl("create", "serviceaccount", "blind")
	config, _, err := s.cluster.ServiceAccount(t.Context(), "default", "blind")
	require.NoError(t, err)
	mgr := newManager(t, config, ctrl.Options{}, newOperator("blind"))
	stop := start(t, mgr)
	says := func(want string) {
		t.Helper()
		said := func() string { return mgr.ready("blind") }
		await.Eventually(t, want, func() bool { return strings.Contains(said(), want) }, said)
	}
	require.NoError(t, s.cluster.Apply(t.Context(), definition))
	says(`boards.example.com: not synced yet: boards.example.com is forbidden`)
	says(`ConfigMap: the live state is not known: configmaps is forbidden`)
	s.kubectl("create", "clusterrolebinding", "seeing", "--clusterrole=cluster-admin", "--serviceaccount=default:blind")
	says("ready")
	s.put("one", "a")
	s.becomes("a", texts...)
	require.NoError(t, stop())
}

func TestAddNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil }
	options := ctrl.Options{Scheme: knowing(t), Metrics: server.Options{BindAddress: "0"}, MapperProvider: mapper}
	mgr, err := ctrl.NewManager(&rest.Config{}, options)
	require.NoError(t, err)
	options.Scheme = runtime.NewScheme()
	ignorant, err := ctrl.NewManager(&rest.Config{}, options)
	require.NoError(t, err)
	for _, c := range []struct {
		want   string
		mgr    ctrl.Manager
		change func(*operator.Operator[*Board])
	}{
		{"Operator.Name: is required", mgr, func(o *operator.Operator[*Board]) { o.Name = "" }},
		{"Operator.Domain: is required", mgr, func(o *operator.Operator[*Board]) { o.Domain = "" }},
		{"Operator.Owns: is required", mgr, func(o *operator.Operator[*Board]) { o.Owns = nil }},
		{"Operator.Children: is required", mgr, func(o *operator.Operator[*Board]) { o.Children = nil }},
		{"Operator.Conditions: is required", mgr, func(o *operator.Operator[*Board]) { o.Conditions = nil }},
		{
			"the field Operator.Kind is not set: no kind is registered for the type controllerruntime_test.Board",
			ignorant, func(*operator.Operator[*Board]) {},
		},
	} {
		o := newOperator("wrong")
		c.change(o)
		require.ErrorContains(t, controllerruntime.Add(c.mgr, o), c.want)
	}
	require.ErrorContains(t, controllerruntime.Add(nil, newOperator("wrong")), "a Manager and an Operator are required")
	require.ErrorContains(t, controllerruntime.Add[*Board](mgr, nil), "a Manager and an Operator are required")
	err = controllerruntime.Add(mgr, &operator.Operator[client.Object]{})
	require.ErrorContains(t, err, "Object; want a pointer to a struct")

	o := newOperator("named")
	o.Kind = boards()
	require.NoError(t, controllerruntime.Add(ignorant, o))
	known := newOperator("known")
	require.NoError(t, controllerruntime.Add(mgr, known))
	require.Equal(t, boards(), known.Kind)
}

func TestAddKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil }
	options := ctrl.Options{Scheme: knowing(t), Metrics: server.Options{BindAddress: "0"}, MapperProvider: mapper}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://server"}, options)
	require.NoError(t, err)
	of := newOperator("theirs")
	require.NoError(t, controllerruntime.Add(mgr, of))
	below, ok := of.HTTPClient.Transport.(utilnet.RoundTripperWrapper)
	require.True(t, ok)
	require.Same(t, mgr.GetHTTPClient().Transport, below.WrappedRoundTripper(), "connections are shared")
	require.Equal(t, mgr.GetConfig(), of.Config)

	own := newOperator("own")
	own.Config = &rest.Config{Host: "http://another"}
	require.NoError(t, controllerruntime.Add(mgr, own))
	require.Equal(t, "http://another", own.Config.Host)
	require.Nil(t, own.HTTPClient, "it reaches another server")
}
