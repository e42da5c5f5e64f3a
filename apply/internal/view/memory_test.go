package view //nolint:testpackage // looks for what only the runtime shows

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A view that kept a name or a label of a list would keep the memory around it.
func TestARecordFitsItsSizeClass(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(Record{}), uintptr(144), "the next class is shared with what a list leaves behind")
}

func TestAListIsReleased(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	text := func() (string, weak.Pointer[[4096]byte]) {
		page := new([4096]byte)
		copy(page[:], "web-parent-uid")
		return unsafe.String(&page[0], len(page)), weak.Make(page)
	}
	list, released := text()
	isController := true
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:       list[:3],
		Name:            list[:3],
		UID:             "u1",
		ResourceVersion: "20",
		Labels:          map[string]string{list[4:6]: list[4:10], "part": list[4:14]},
		OwnerReferences: []metav1.OwnerReference{{UID: types.UID(list[4:14]), Controller: &isController}},
	}}
	require.NoError(t, v.Replace([]any{m}, "20"))
	list, m = "", nil
	runtime.GC()
	require.True(t, released.Value() == nil, "it is still held")
	look := v.Look(NameOf("web", "web"))
	require.True(t, look.Found)
	require.Equal(
		t,
		[]string{"parent", "parent-uid", "parent-uid"},
		[]string{look.Record.Label("pa", me), look.Record.Part(), look.Record.Controller()},
	)
	_, _ = list, m
}
