package apply //nolint:testpackage // no server stores such a record

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestARecordOfOwnershipThatCannotBeReadIsSettledByAnApply(t *testing.T) {
	t.Parallel()
	set := benchmarkSet(t, 6)
	a := benchmarkApplier(t, set)
	v := a.Live.registry.view(set.items[0].id.GroupKind()).Sink("")
	for i, corrupt := range []string{`{`, `[]`, `{"f:spec":1}`, `{"k:{":{}}`, ``} {
		it := set.items[i]
		require.NoError(t, v.Put(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: it.id.Name, Namespace: it.id.Namespace, UID: "u", ResourceVersion: "200000", Labels: set.owner.Labels,
			Annotations: map[string]string{"example.com/desired-hash": it.hash.String()},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "me", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: &metav1.FieldsV1{Raw: []byte(corrupt)},
			}},
		}}))
	}
	for i := range set.items {
		p, err := a.begin(t.Context(), set)
		require.NoError(t, err)
		v := p.decide(&set.items[i])
		p.done()
		require.NoError(t, v.err)
		require.Equal(t, map[bool]Action{true: send, false: unchanged}[i < 5], v.action, "item %d", i)
	}
	_, err := diff.Owned(&metav1.ManagedFieldsEntry{Manager: "me", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{`)}})
	require.ErrorContains(t, err, `managedFields of "me"`)
}
