package controllerruntime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Unknown is a type that the scheme of the Manager does not know.
type Unknown struct{ corev1.ConfigMap }

// DeepCopyObject implements runtime.Object.
func (u *Unknown) DeepCopyObject() runtime.Object { c := *u; return &c }

// pins is a kind of children whose schema an older definition has: it lacks a field of the program.
const pins = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pins.example.com}
spec:
  group: example.com
  names: {plural: pins, singular: pin, kind: Pin, listKind: PinList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {%s: {type: string}}}}}}
`

// olderSchema is that of Boards without conditions.
const olderSchema = "properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, " +
	"status: {type: object, properties: {observedGeneration: {type: integer}}}}"

func pinKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pin"}
}

// rights are those of the ServiceAccount without Pins, with some more rules.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: boards}
rules:
- {apiGroups: [example.com], resources: [boards, boards/status, boards/finalizers], verbs: [get, list, watch, patch, update]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
%s
`

// bad is what a function of children returns beside a note, by the text of another note.
func bad(board *Board, text string) []operator.Object {
	extra := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: board.Name + "-extra"}}
	switch text {
	case "panics":
		panic("no such board")
	case "elsewhere":
		extra.Namespace = "kube-system"
	case "twice":
		return []operator.Object{extra, extra}
	case "unknown":
		return []operator.Object{&Unknown{}}
	case "pin":
		pin := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"colour": "red"}}}
		pin.SetGroupVersionKind(pinKind())
		pin.SetName(board.Name)
		return []operator.Object{pin}
	case "deployment":
		labels := map[string]string{"board": board.Name}
		pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1"}}
		spec := appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod}
		return []operator.Object{&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: board.Name}, Spec: spec}}
	}
	return []operator.Object{extra}
}

// What one Board has wrong is in its status, and what the server lacks for all is in readiness. The
// others go on.
func TestWhatIsWrongIsNamedAndTheOthersGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it waits for repetitions")
	}
	t.Parallel()
	s := &site{t, kubetest.Start(t, kubetest.Options{})}
	require.NoError(t, s.cluster.Apply(t.Context(), definition))
	s.kubectl("wait", "--for=condition=Established", "crd/boards.example.com", "--timeout=300s")
	s.kubectl("create", "serviceaccount", "boards")
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(rights, "")))
	s.kubectl("create", "clusterrolebinding", "boards", "--clusterrole=boards", "--serviceaccount=default:boards")
	config, _, err := s.cluster.ServiceAccount(t.Context(), "default", "boards")
	require.NoError(t, err)

	o := newOperator("bad")
	notes := o.Children
	o.Owns = append(o.Owns, pinKind(), appsv1.SchemeGroupVersion.WithKind("Deployment"))
	o.Children = func(ctx context.Context, board *Board) ([]operator.Object, error) {
		children, err := notes(ctx, board)
		if len(board.Spec.Notes) < 2 || err != nil {
			return children, err
		}
		return append(children[:1], bad(board, board.Spec.Notes[1])...), nil
	}
	scheme := knowing(t)
	require.NoError(t, appsv1.AddToScheme(scheme))
	o.Scheme = scheme
	mgr := newManager(t, config, ctrl.Options{}, o)
	stop := start(t, mgr)

	// A kind that is not there, and then may not be seen, is named.
	says := func(want string) {
		t.Helper()
		said := func() string { return mgr.ready("bad") }
		await.Until(t, 2*await.Moment, want, func() bool { return strings.Contains(said(), want) }, said)
	}
	says("Pin.example.com: ")
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(pins, "size")))
	s.kubectl("wait", "--for=condition=Established", "crd/pins.example.com", "--timeout=300s")
	says("pins.example.com is forbidden")
	s.put("early", "a")
	s.becomes("a", texts...)
	s.says("early", "Ready", "False NotSynced", "Pin.example.com: ") // a Pin may be left of it

	// A right that is missing for one child is in the status of its Board.
	read := "- {apiGroups: [example.com], resources: [pins], verbs: [get, list, watch]}"
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(rights, read)))
	says("ready")
	s.says("early", "Ready", "True Ready", "")
	for text, want := range map[string][2]string{
		"panics":     {"Stalled", "True InvalidChildren panic: no such board"},
		"elsewhere":  {"Stalled", `True InvalidChildren child 1: ConfigMap "elsewhere-extra": metadata.namespace: is "kube-system", must be "default"`},
		"twice":      {"Stalled", "True InvalidChildren ConfigMap/default/twice-extra"},
		"unknown":    {"Stalled", `True InvalidChildren child 1: *controllerruntime_test.Unknown "": Operator.Scheme: no kind is registered`},
		"pin":        {"Stalled", "True Forbidden Pin.example.com/default/pin: "},
		"deployment": {"Stalled", `True Forbidden Deployment.apps/default/deployment: pods: pods is forbidden`},
	} {
		s.put(text, "a", text)
		status, message := strings.Fields(want[1])[:2], strings.SplitN(want[1], " ", 3)[2]
		s.says(text, want[0], strings.Join(status, " "), message)
	}
	s.put("late", "b")
	s.says("late", "Ready", "True Ready", "")

	// One that its type cannot hold says so, and can be deleted.
	require.NoError(t, s.cluster.Apply(t.Context(),
		"{apiVersion: example.com/v1, kind: Board, metadata: {name: misfit, namespace: default}, spec: {notes: 7}}"))
	s.says("misfit", "Stalled", "True InvalidObject", "cannot unmarshal number into Go struct field")
	s.put("late", "c")
	s.becomes("c", "get", "configmap", "late-c", "-o", "jsonpath={.data.text}")
	s.kubectl("delete", "board", "misfit", "--timeout=2m")

	// A definition that is older than the program lacks a field, which is named.
	write := "- {apiGroups: [example.com], resources: [pins], verbs: [get, list, watch, create, patch, delete]}"
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(rights, write)))
	s.put("pin", "b", "pin")
	s.says("pin", "Reconciling", "True RequestFailed", ".spec.colour: field not declared in schema")
	require.Equal(t, "b", s.kubectl("get", "configmap", "pin-b", "-o", "jsonpath={.data.text}"), "its other child is there")
	require.NoError(t, s.cluster.Apply(t.Context(), fmt.Sprintf(pins, "colour")))
	s.put("pin", "c", "pin")
	s.says("pin", "Ready", "True Ready", "")

	// So is a status that cannot be written.
	older := strings.ReplaceAll(definition, "x-kubernetes-preserve-unknown-fields: true", olderSchema)
	require.NoError(t, s.cluster.Apply(t.Context(), older))
	drops := func() bool {
		_, err := s.cluster.Kubectl(t.Context(), "patch", "board", "late", "--subresource=status", "--type=merge",
			"-p", `{"status":{"conditions":[{"type":"A"}]}}`)
		require.NoError(t, err)
		return !strings.Contains(s.kubectl("get", "board", "late", "-o", "jsonpath={.status}"), `"A"`)
	}
	await.Eventually(t, "the older definition is in force", drops)
	s.put("late", "d")
	says("boards.example.com default/late: status: the server dropped all written fields")
	s.becomes("d", "get", "configmap", "late-d", "-o", "jsonpath={.data.text}")
	require.NoError(t, s.cluster.Apply(t.Context(), definition))
	says("ready")
	s.kubectl("delete", "clusterrolebinding", "boards")
	s.kubectl("create", "clusterrolebinding", "boards", "--clusterrole=unable", "--serviceaccount=default:boards")
	unable := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprintf(rights, write), "{name: boards}", "{name: unable}"), "boards/status, ", "")
	require.NoError(t, s.cluster.Apply(t.Context(), unable))
	s.put("late", "refuse")
	says(`cannot patch resource "boards/status"`)
	require.NoError(t, stop())
}

// says waits until a condition of a Board has a status, a reason, and words in its message.
func (s *site) says(board, condition, want, message string) {
	s.Helper()
	var have string
	format := `jsonpath={.status.conditions[?(@.type=="` + condition + `")]['status','reason','message']}`
	await.Until(s, 2*await.Moment, fmt.Sprint(board, " is ", want, ": ", message), func() bool {
		have = s.kubectl("get", "board", board, "-o", format)
		return strings.HasPrefix(have, want+" ") && strings.Contains(have, message)
	}, func() string { return have })
}
