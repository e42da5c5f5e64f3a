package write_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

var (
	owner = &identity.Identity{
		Manager: "me", Labels: map[string]string{"owner": "me"}, PartLabel: "part", Supersedes: []string{"old"},
		HashAnnotation: "example.com/hash", DependsOnAnnotation: "example.com/depends-on",
	}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// server holds one object, and the requests that it got.
type server struct {
	clientmetadata.Getter

	held    *metav1.PartialObjectMetadata
	patches []map[string]any
	forced  []bool   // whether each was
	checks  []string // the field validation of each
	deleted []metav1.DeleteOptions
	refuse  []error                       // of the next patches
	next    *metav1.PartialObjectMetadata // takes the name when a patch is refused
}

func (s *server) Resource(schema.GroupVersionResource) clientmetadata.Getter { return s }

func (s *server) Namespace(string) clientmetadata.ResourceInterface { return s }

func (s *server) Get(context.Context, string, metav1.GetOptions, ...string) (*metav1.PartialObjectMetadata, error) {
	return s.held.DeepCopy(), nil
}

func (s *server) Patch(
	_ context.Context,
	_ string,
	_ types.PatchType,
	data []byte,
	options metav1.PatchOptions,
	_ ...string,
) (*metav1.PartialObjectMetadata, error) {
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	s.patches = append(s.patches, body["metadata"].(map[string]any))
	s.forced = append(s.forced, options.Force != nil && *options.Force)
	s.checks = append(s.checks, options.FieldValidation)
	if len(s.refuse) > 0 {
		err := s.refuse[0]
		s.refuse = s.refuse[1:]
		if s.next != nil {
			s.held = s.next
		}
		return nil, err
	}
	return s.held.DeepCopy(), nil
}

func (s *server) Delete(_ context.Context, _ string, options metav1.DeleteOptions, _ ...string) error {
	s.deleted = append(s.deleted, options)
	return nil
}

// live returns an object that a manager has applied or updated.
func live(uid, manager string, operation metav1.ManagedFieldsOperationType, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Namespace: "x", UID: types.UID(uid), ResourceVersion: "7", Labels: labels,
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:k":{}}}`)},
		}},
	}}
}

func target(t *testing.T) *write.Target {
	t.Helper()
	body, err := wire.Encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "x"}, "data": map[string]any{"k": "v"},
	})
	require.NoError(t, err)
	return &write.Target{
		Resource: configMaps, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "x", Name: "a",
		Body: body, Part: "p", UID: "u", Force: true,
	}
}

func TestAnObjectIsWrittenOnlyIfItIsOursToWrite(t *testing.T) {
	t.Parallel()
	const applied, updated = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	dying := live("u", "me", applied, map[string]string{"owner": "me", "part": "p"})
	dying.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		found *metav1.PartialObjectMetadata
		adopt bool
		want  error
	}{
		"ours":                                      {live("u", "me", applied, map[string]string{"owner": "me", "part": "p"}), false, nil},
		"ours, without a part":                      {live("u", "me", applied, map[string]string{"owner": "me"}), false, nil},
		"ours, unlabelled":                          {live("u", "me", applied, nil), false, nil},
		"another owner's":                           {live("u", "me", applied, map[string]string{"owner": "you"}), false, write.ErrNotOurs},
		"another owner's, to be adopted":            {live("u", "you", applied, map[string]string{"owner": "you"}), true, write.ErrNotOurs},
		"an administrator's":                        {live("u", "kubectl", updated, nil), false, write.ErrNotOurs},
		"an administrator's, to be adopted":         {live("u", "kubectl", updated, nil), true, nil},
		"another part's":                            {live("u", "me", applied, map[string]string{"owner": "me", "part": "q"}), false, write.ErrClaimed},
		"another part's, unlabelled, to be adopted": {live("u", "me", applied, map[string]string{"part": "q"}), true, write.ErrClaimed},
		"dying": {dying, false, write.ErrTerminating},
	} {
		err := (&write.Writer{Owner: owner}).Claim(&write.Target{Part: "p", Adopt: test.adopt}, test.found)
		require.ErrorIs(t, err, test.want, name)
	}
}

// TestWhatAControllerHasIsOfThatParentAlone: the controller is the one of that UID, and a
// desired object that names none has none.
func TestWhatAControllerHasIsOfThatParentAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		desired, found string // UIDs of the controllers
		adopt          bool
		want           error
	}{
		"of the same parent":                     {"u1", "u1", false, nil},
		"of the same parent, to be adopted":      {"u1", "u1", true, nil},
		"of its predecessor":                     {"u1", "u2", false, write.ErrNotOurs},
		"of its predecessor, to be adopted":      {"u1", "u2", true, write.ErrNotOurs},
		"of one that is not stated":              {"", "u1", false, write.ErrNotOurs},
		"of one that is not stated, to be taken": {"", "u1", true, write.ErrNotOurs},
		"of none":                                {"u1", "", false, write.ErrNotOurs},
		"of none, to be adopted":                 {"u1", "", true, nil},
	} {
		body := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "x"}}
		if test.desired != "" {
			body["metadata"] = map[string]any{"name": "a", "namespace": "x", "ownerReferences": []any{
				map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": test.desired, "controller": true},
			}}
		}
		encoded, err := wire.Encode(body)
		require.NoError(t, err)
		found := live("u", "another", metav1.ManagedFieldsOperationUpdate, nil)
		if test.found != "" {
			controls := true
			found.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "parent", UID: types.UID(test.found), Controller: &controls},
			}
		}
		err = (&write.Writer{Owner: owner}).Claim(&write.Target{Part: "p", Body: encoded, Adopt: test.adopt}, found)
		require.ErrorIs(t, err, test.want, name)
	}
}

func TestADeletionAndAReleaseAreForOneVersionOfOneObject(t *testing.T) {
	t.Parallel()
	s := &server{held: live("u", "me", metav1.ManagedFieldsOperationApply, owner.Labels)}
	w := &write.Writer{Owner: owner, Metadata: s}
	require.NoError(t, w.Delete(t.Context(), target(t), wire.Must{UID: "u", Version: "7"}, ""))
	require.Len(t, s.deleted, 1)
	require.EqualValues(t, "u", *s.deleted[0].Preconditions.UID)
	require.Equal(t, "7", *s.deleted[0].Preconditions.ResourceVersion)
	require.Equal(t, metav1.DeletePropagationBackground, *s.deleted[0].PropagationPolicy)

	require.NoError(t, w.Release(t.Context(), target(t), wire.Must{UID: "u", Version: "7"}, []string{"owner"}, []string{"example.com/hash"}))
	require.Equal(t, []map[string]any{{
		"uid": "u", "resourceVersion": "7", "labels": map[string]any{"owner": nil}, "annotations": map[string]any{"example.com/hash": nil},
	}}, s.patches)
}

// That an undeclared field is refused all the same is tested on a real server.
func TestAnApplyHasTheServerParseTheBodyOnce(t *testing.T) {
	t.Parallel()
	s := &server{held: live("u", "me", metav1.ManagedFieldsOperationApply, owner.Labels)}
	w := &write.Writer{Owner: owner, Metadata: s}
	_, _, err := w.Write(t.Context(), target(t))
	require.NoError(t, err)
	require.Equal(t, []string{metav1.FieldValidationIgnore}, s.checks)
}

func TestAnObjectThatLostALabelIsAppliedInThatVersionWithoutForce(t *testing.T) {
	t.Parallel()
	conflict := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Details: &metav1.StatusDetails{
		Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldManagerConflict, Field: ".metadata.labels.owner", Message: `conflict with "you"`},
		},
	}}}
	for name, test := range map[string]struct {
		lost, lostUID string
		refuse        error
		want          write.Done
		sent          []any // versions
		forced        []bool
	}{
		"unlabelled":          {"7", "u", nil, write.Updated, []any{"7"}, []bool{false}},
		"deleted":             {"7", "gone", nil, write.Created, []any{"7"}, []bool{false}},
		"never there":         {"", "", nil, write.Created, []any{"1"}, []bool{true}},
		"labelled by another": {"7", "u", conflict, write.Updated, []any{"7", nil}, []bool{false, true}},
	} {
		s := &server{held: live("u", "me", metav1.ManagedFieldsOperationApply, owner.Labels)}
		if test.refuse != nil {
			s.refuse = []error{test.refuse}
		}
		known := target(t)
		known.UID, known.Lost, known.LostUID = "", test.lost, test.lostUID
		done, _, err := (&write.Writer{Owner: owner, Metadata: s}).Write(t.Context(), known)
		require.NoError(t, err, name)
		require.Equal(t, test.want, done, name)
		var versions []any
		for _, metadata := range s.patches {
			versions = append(versions, metadata["resourceVersion"])
		}
		require.Equal(t, test.sent, versions, name)
		require.Equal(t, test.forced, s.forced, name)
	}
}

func TestFieldsAreMovedInOneVersionOfTheKnownObjectOnly(t *testing.T) {
	t.Parallel()
	s := &server{held: live("u", "old", metav1.ManagedFieldsOperationUpdate, owner.Labels)}
	w := &write.Writer{Owner: owner, Metadata: s}
	known := target(t)
	known.Superseded = true
	_, _, err := w.Write(t.Context(), known)
	require.NoError(t, err)
	require.Len(t, s.patches, 2, "the record, and then the apply")
	require.Contains(t, s.patches[0], "managedFields")
	require.Equal(t, "u", s.patches[0]["uid"])
	require.Equal(t, "7", s.patches[0]["resourceVersion"])
	require.Equal(t, "u", s.patches[1]["uid"])

	// Another object has taken the name: nothing of it is changed before it is claimed.
	s.held, s.patches = live("another", "old", metav1.ManagedFieldsOperationUpdate, map[string]string{"owner": "you"}), nil
	s.refuse = []error{apierrors.NewConflict(configMaps.GroupResource(), "a", errors.New("uid"))}
	known = target(t)
	known.Superseded = true
	_, _, err = w.Write(t.Context(), known)
	require.ErrorIs(t, err, write.ErrNotOurs)
	require.Len(t, s.patches, 1, "the apply that was refused")
	require.NotContains(t, s.patches[0], "managedFields")
}

func TestFieldsOfASuccessorAreNotMoved(t *testing.T) {
	t.Parallel()
	const updated = metav1.ManagedFieldsOperationUpdate
	s := &server{held: live("u", "old", updated, owner.Labels), next: live("successor", "old", updated, owner.Labels)}
	s.refuse = []error{apierrors.NewConflict(configMaps.GroupResource(), "a", errors.New("version"))}
	known := target(t)
	known.Superseded = true
	_, _, err := (&write.Writer{Owner: owner, Metadata: s}).Write(t.Context(), known)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Len(t, s.patches, 1)
}

func TestOfAClientSideApplyOnlyWhatItStatedIsTaken(t *testing.T) {
	t.Parallel()
	const (
		annotation = "kubectl.kubernetes.io/last-applied-configuration"
		applied    = `{"f:data":{"f:default":{},"f:dropped":{},"f:k":{}},"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}`
		data       = `{"f:data":{"f:default":{},"f:dropped":{},"f:k":{}}}`
	)
	for name, test := range map[string]struct{ fields, annotation, want string }{
		"what it stated":            {applied, `{"data": {"k": "0", "dropped": "1"}, "metadata": {"name": "a"}}`, `{"f:data":{"f:dropped":{},"f:k":{}}}`},
		"a broken record":           {applied, `{`, `{}`},
		"a manager that keeps none": {data, `{"data": {"k": "0"}}`, data},
		"no annotation":             {data, "", data},
	} {
		s := &server{held: live("u", "old", metav1.ManagedFieldsOperationUpdate, owner.Labels)}
		s.held.ManagedFields[0].FieldsV1.Raw = []byte(test.fields)
		s.held.Annotations = map[string]string{annotation: test.annotation}
		known := target(t)
		known.Superseded = true
		_, _, err := (&write.Writer{Owner: owner, Metadata: s}).Write(t.Context(), known)
		require.NoError(t, err, name)
		entries := s.patches[0]["managedFields"].([]any)
		require.Len(t, entries, 1, "the superseded manager has none any more")
		entry := entries[0].(map[string]any)
		require.Equal(t, "me", entry["manager"], name)
		got, err := json.Marshal(entry["fieldsV1"])
		require.NoError(t, err)
		require.JSONEq(t, test.want, string(got), name)
	}
}

func TestFieldsThatOthersOwnAsWellAreNotGivenToTheManagerOfTheRest(t *testing.T) {
	t.Parallel()
	s := &server{held: live("u", "me", metav1.ManagedFieldsOperationApply, owner.Labels)}
	s.held.ManagedFields[0].FieldsV1.Raw = []byte(`{"f:data":{"f:k":{},"f:left":{},"f:shared":{}}}`)
	s.held.ManagedFields = append(s.held.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "autoscaler", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:shared":{}}}`)},
	})
	ignore, err := diff.NewIgnore(diff.Rule{Paths: []string{".data.left", ".data.shared"}})
	require.NoError(t, err)
	known := target(t)
	known.Left = ignore
	known.Create, err = wire.Encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "x"},
		"data": map[string]any{"k": "v", "left": "v", "shared": "v"},
	})
	require.NoError(t, err)
	_, _, err = (&write.Writer{Owner: owner, Metadata: s}).Write(t.Context(), known)
	require.NoError(t, err)
	fields := map[string]any{}
	for _, entry := range s.patches[0]["managedFields"].([]any) {
		e := entry.(map[string]any)
		fields[e["manager"].(string)] = e["fieldsV1"].(map[string]any)["f:data"]
	}
	require.Equal(t, map[string]any{
		"me":         map[string]any{"f:k": map[string]any{}, "f:shared": map[string]any{}}, // the apply gives it up
		"me-left":    map[string]any{"f:left": map[string]any{}},
		"autoscaler": map[string]any{"f:shared": map[string]any{}},
	}, fields)
}
