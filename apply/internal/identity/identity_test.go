package identity_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestLabelsTellAnOwnersObjectsFromOthers(t *testing.T) {
	t.Parallel()
	id := identity.Identity{Labels: map[string]string{"a": "1", "b": "2"}}
	for want, have := range map[identity.Standing][]map[string]string{
		identity.Labelled:   {{"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}},
		identity.Unlabelled: {nil, {"a": "1"}, {"c": "3"}},
		identity.Others:     {{"a": "9", "b": "2"}, {"b": "9"}},
	} {
		for _, labels := range have {
			require.Equal(t, want, id.Standing(labels), "%v", labels)
		}
	}
	require.Equal(t, "a=1,b=2", id.Selector())
}

func TestADigestIsOfOurWritesAlone(t *testing.T) {
	t.Parallel()
	id := identity.Identity{Manager: "me", Supersedes: []string{"kubectl-client-side-apply"}}
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager:     manager,
			Operation:   operation,
			Subresource: subresource,
			FieldsV1:    &metav1.FieldsV1{Raw: []byte(fields)},
		}
	}
	object := func(entries ...metav1.ManagedFieldsEntry) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1", ManagedFields: entries}}
	}
	applied := entry("me", metav1.ManagedFieldsOperationApply, "", `{"f:data":{}}`)
	updated := entry("me", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{}}`)
	status := entry("me", metav1.ManagedFieldsOperationUpdate, "status", `{"f:status":{}}`)
	other := entry("other", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{}}`)
	legacy := entry("kubectl-client-side-apply", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{}}`)

	require.Zero(t, id.Digest(object(other, status)), "nothing of it is ours")
	require.False(t, id.Wrote(object(other)))
	require.True(t, id.Wrote(object(applied)))
	require.True(t, id.Wrote(object(updated)))
	require.Equal(t, id.Digest(object(applied)), id.Digest(object(other, applied, status)))
	require.NotEqual(t, id.Digest(object(applied)), id.Digest(object(applied, updated)))

	bare, next := object(), object()
	next.ResourceVersion = "2"
	require.NotEqual(t, id.Digest(bare), id.Digest(next), "any change changes it")
	require.False(t, id.Wrote(bare))

	require.True(t, id.Superseded([]metav1.ManagedFieldsEntry{applied, legacy}))
	require.False(t, id.Superseded([]metav1.ManagedFieldsEntry{applied, other, updated}))
}

func TestAnObjectIsInheritedFromAnApplyAndNotFromAnUpdate(t *testing.T) {
	t.Parallel()
	const applied, updated = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	id := identity.Identity{Manager: "me", Supersedes: []string{"old"}}
	for name, test := range map[string]struct {
		manager, subresource string
		operation            metav1.ManagedFieldsOperationType
		want                 bool
	}{
		"applied":                 {"old", "", applied, true},
		"updated, perhaps a copy": {"old", "", updated, false},
		"its status":              {"old", "status", applied, false},
		"ours":                    {"me", "", applied, false},
		"another's":               {"you", "", applied, false},
	} {
		entries := []metav1.ManagedFieldsEntry{
			{
				Manager:     test.manager,
				Operation:   test.operation,
				Subresource: test.subresource,
				FieldsV1:    &metav1.FieldsV1{Raw: []byte(`{"f:data":{}}`)},
			},
		}
		require.Equal(t, test.want, id.Inherited(entries), name)
	}
}

func TestAPartLabelIsProvenByAManagerOfTheOwner(t *testing.T) {
	t.Parallel()
	id := identity.Identity{Manager: "me", PartLabel: "part", Supersedes: []string{"old"}}
	for name, test := range map[string]struct {
		label    string
		managers []string // of the label
		want     bool     // strayed
	}{
		"ours":                       {"p", []string{"me"}, false},
		"a superseded manager's":     {"p", []string{"old"}, false},
		"another's":                  {"p", []string{"you"}, true},
		"another's and ours":         {"p", []string{"you", "me"}, false},
		"another's and a superseded": {"p", []string{"you", "old"}, false},
		"of no manager":              {"p", nil, false},
		"no label":                   {"", []string{"you"}, false},
	} {
		m := &metav1.PartialObjectMetadata{}
		if test.label != "" {
			m.Labels = map[string]string{"part": test.label}
		}
		for _, manager := range test.managers {
			m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:part":{}}}}`)},
			})
		}
		require.Equal(t, test.want, id.Strayed(m), name)
	}
}

func TestADigestSeesAWriteOfAnOlderReplicaInTheSameSecond(t *testing.T) {
	t.Parallel()
	id := identity.Identity{Manager: "me", HashAnnotation: "example.com/desired-hash"}
	for _, operation := range []metav1.ManagedFieldsOperationType{metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate} {
		digest := func(hash string) diff.Sum {
			return id.Digest(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{id.HashAnnotation: hash},
				ManagedFields: []metav1.ManagedFieldsEntry{{
					Manager: "me", Operation: operation, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{}}`)},
				}},
			}})
		}
		require.Equal(t, digest("new"), digest("new"))
		require.NotEqual(t, digest("new"), digest("old"), "the same fields at the same time, with the other's values")
	}
}

func TestASumTellsListsApart(t *testing.T) {
	t.Parallel()
	seen := map[diff.Sum]bool{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"a", "b"}, {"ab"}, {"ab", ""}, {"", "ab"}, {"b", "a"}} {
		sum := identity.Sum(parts...)
		require.False(t, seen[sum], "%q", parts)
		seen[sum] = true
	}
}

func TestAnAnnotationIsTheOwnersWhileItsManagerHasIt(t *testing.T) {
	t.Parallel()
	id := identity.Identity{Manager: "me", Supersedes: []string{"old"}}
	const has, other = `{"f:metadata":{"f:annotations":{"f:kinds":{}}}}`, `{"f:metadata":{"f:annotations":{"f:other":{}}}}`
	for name, test := range map[string]struct {
		manager, fields string
		want            bool
	}{
		"ours":                    {"me", has, true},
		"a superseded manager's":  {"old", has, true},
		"another's":               {"you", has, false},
		"of ours, another":        {"me", other, false},
		"none of ours":            {"me", `{"f:data":{}}`, false},
		"fields that are no JSON": {"me", `{`, false},
	} {
		entries := []metav1.ManagedFieldsEntry{{Manager: "me"}, {Manager: test.manager, FieldsV1: &metav1.FieldsV1{Raw: []byte(test.fields)}}}
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries}}
		require.Equal(t, test.want, id.Annotated(m, "kinds"), name)
	}
}
