package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnObjectIsTouchedByWhatAnotherProgramWroteLater(t *testing.T) {
	t.Parallel()
	at := func(second int64) *metav1.Time { return new(metav1.Unix(second, 0)) }
	ours := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Time: at(10)}
	for name, c := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"before":           {metav1.ManagedFieldsEntry{Manager: "alice", Time: at(9)}, false},
		"with it":          {metav1.ManagedFieldsEntry{Manager: "alice", Time: at(10)}, false},
		"later":            {metav1.ManagedFieldsEntry{Manager: "alice", Time: at(11)}, true},
		"without a time":   {metav1.ManagedFieldsEntry{Manager: "alice"}, false},
		"the status":       {metav1.ManagedFieldsEntry{Manager: "alice", Subresource: "status", Time: at(11)}, false},
		"the scale":        {metav1.ManagedFieldsEntry{Manager: "alice", Subresource: "scale", Time: at(11)}, true},
		"by our name only": {metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: at(11)}, true},
	} {
		object := &metav1.PartialObjectMetadata{}
		for _, entries := range [][]metav1.ManagedFieldsEntry{{ours, c.entry}, {c.entry, ours}} {
			object.ManagedFields = entries
			require.Equal(t, c.want, touched(object), name)
		}
	}
}
