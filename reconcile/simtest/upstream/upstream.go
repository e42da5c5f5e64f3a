package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Machinery implements [simtest.Machinery]. The zero value is ready. It is safe for
// concurrent use. Assign it to Scenario.Machinery or Server.Machinery.
type Machinery struct {
	// Scheme has the types of built-in kinds, such as scheme.Scheme of
	// k8s.io/client-go/kubernetes/scheme. Of its kinds, lists have the keys that they
	// have in a real server, and protobuf is read. It may have more kinds. Lists of custom kinds
	// have the keys that their definition says ([Definitions]). Of all other kinds a list is one
	// field, as in a custom resource without list types, but for those of the metadata. Default
	// nil, which is no kind. Strategic merge patches need the type.
	Scheme *runtime.Scheme

	mu    sync.Mutex
	types managedfields.TypeConverter
	kinds map[way]*managedfields.FieldManager
}

// way is a kind, and how its objects are written.
type way struct {
	kind              schema.GroupVersionKind
	subresource, kept string
	defined           *custom // nil without a definition
}

var _ simtest.Machinery = (*Machinery)(nil)

// Apply implements [simtest.Machinery]. The error of a conflict names the other
// managers and their fields.
func (m *Machinery) Apply(live, config simtest.Object, w simtest.Write) (simtest.Object, error) {
	fields, err := m.of(config, w)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = simtest.Object{"apiVersion": config["apiVersion"], "kind": config["kind"]}
	}
	return object(fields.Apply(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: config}, w.Manager, w.Force))
}

// Update implements [simtest.Machinery]. Like a real server it keeps the managedFields
// of an object that does not fit its schema.
func (m *Machinery) Update(live, next simtest.Object, w simtest.Write) (simtest.Object, error) {
	fields, err := m.of(next, w)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = simtest.Object{"apiVersion": next["apiVersion"], "kind": next["kind"]}
	}
	return object(fields.UpdateNoErrors(&unstructured.Unstructured{Object: live}, &unstructured.Unstructured{Object: next}, w.Manager), nil)
}

// refusal is an error that a real server answers with a certain code.
type refusal struct {
	error

	code int
}

// Causes are in the details of the answer.
func (r refusal) Causes() (all []simtest.Cause) {
	var status apierrors.APIStatus
	if !errors.As(r.error, &status) || status.Status().Details == nil {
		return nil
	}
	for _, each := range status.Status().Details.Causes {
		all = append(all, simtest.Cause{Reason: string(each.Type), Field: each.Field, Message: each.Message})
	}
	return all
}

// StatusCode is the code that a simulated server answers with.
func (r refusal) StatusCode() int { return r.code }

// Unwrap returns the cause.
func (r refusal) Unwrap() error { return r.error }

// Patch implements [simtest.Machinery].
func (m *Machinery) Patch(form string, live simtest.Object, patch []byte) (simtest.Object, error) {
	if form == "application/strategic-merge-patch+json" {
		return m.strategic(live, patch)
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, refusal{err, http.StatusBadRequest}
	}
	data, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	if data, err = operations.Apply(data); err != nil {
		return nil, refusal{err, http.StatusUnprocessableEntity}
	}
	return decoded(data)
}

func (m *Machinery) strategic(live simtest.Object, patch []byte) (simtest.Object, error) {
	kind := kindOf(live)
	if m.Scheme == nil || !m.Scheme.Recognizes(kind) {
		return nil, refusal{fmt.Errorf("a strategic merge patch of %s needs its type in the field Scheme", kind), http.StatusUnsupportedMediaType}
	}
	typed, err := m.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	changes, err := decoded(patch)
	if err != nil {
		return nil, refusal{err, http.StatusBadRequest}
	}
	next, err := strategicpatch.StrategicMergeMapPatch(strategicpatch.JSONMap(live), strategicpatch.JSONMap(changes), typed)
	switch {
	case err == nil:
		return copied(simtest.Object(next))
	case slices.ContainsFunc([]error{
		mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat,
	}, func(each error) bool { return errors.Is(err, each) }):
		return nil, refusal{err, http.StatusBadRequest}
	default:
		return nil, refusal{err, http.StatusUnprocessableEntity}
	}
}

// Decode implements [simtest.Machinery].
func (m *Machinery) Decode(form string, body []byte) (simtest.Object, error) {
	switch {
	case strings.HasSuffix(form, "yaml"):
		data, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, refusal{err, http.StatusBadRequest}
		}
		return decoded(data)
	case form != "application/vnd.kubernetes.protobuf":
		return nil, refusal{fmt.Errorf("%s is not served", form), http.StatusUnsupportedMediaType}
	case m.Scheme == nil:
		return nil, refusal{errors.New("protobuf needs the types in the field Scheme"), http.StatusUnsupportedMediaType}
	}
	o, kind, err := serializer.NewCodecFactory(m.Scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, refusal{err, http.StatusBadRequest}
	}
	o.GetObjectKind().SetGroupVersionKind(*kind)
	return object(o, nil)
}

// object returns what upstream code returned, as JSON decodes it.
func object(o runtime.Object, err error) (simtest.Object, error) {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return nil, refusal{err, int(status.Status().Code)}
	case err != nil:
		return nil, refusal{err, http.StatusInternalServerError}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return decoded(data)
}

func decoded(data []byte) (simtest.Object, error) {
	var o simtest.Object
	return o, json.Unmarshal(data, &o)
}

func copied(o simtest.Object) (simtest.Object, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return decoded(data)
}

func kindOf(o simtest.Object) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(fmt.Sprint(o["apiVersion"]), fmt.Sprint(o["kind"]))
}

// of returns the field manager of a kind.
func (m *Machinery) of(o simtest.Object, w simtest.Write) (*managedfields.FieldManager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := kindOf(o)
	defined, _ := w.Schema.(*custom)
	name := way{kind, w.Subresource, strings.Join(w.Kept, " "), defined}
	if m.kinds == nil {
		m.kinds = map[way]*managedfields.FieldManager{}
	}
	if m.kinds[name] != nil {
		return m.kinds[name], nil
	}
	kept := fieldpath.NewSet()
	for _, each := range w.Kept {
		var path fieldpath.Path
		for part := range strings.SplitSeq(each, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &part})
		}
		kept.Insert(path)
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(kind.GroupVersion().String()): fieldpath.NewExcludeSetFilter(kept)}
	var err error
	m.kinds[name], err = managedfields.NewDefaultCRDFieldManager(
		m.converter(kind, defined), same{}, same{}, same{}, kind, kind.GroupVersion(), w.Subresource, reset,
	)
	return m.kinds[name], err
}

// converter knows the types of a kind: by its definition, if there is one, by those of client-go,
// if it is a built-in one, and else as its objects look.
func (m *Machinery) converter(kind schema.GroupVersionKind, defined *custom) managedfields.TypeConverter {
	if defined != nil {
		return defined.types
	}
	if m.Scheme == nil || !m.Scheme.Recognizes(kind) || applyconfigurations.ForKind(kind) == nil {
		return deduced()
	}
	if m.types == nil {
		m.types = applyconfigurations.NewTypeConverter(m.Scheme)
	}
	return m.types
}

// same converts nothing: a simulated server serves one version of a kind.
type same struct{}

// Convert implements runtime.ObjectConvertor.
func (same) Convert(in, out, _ any) error {
	return fmt.Errorf("upstream: no conversion of %T to %T", in, out)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (same) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (same) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default implements runtime.ObjectDefaulter.
func (same) Default(runtime.Object) {}

// New implements runtime.ObjectCreater.
func (same) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o, nil
}
