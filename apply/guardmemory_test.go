package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// Of two programs that have read one version, the second to save fails and has changed
// nothing.
func TestAConfigMapRemembersWhatWasSavedInItsVersion(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	client, err := dynamic.NewForConfig(b.config)
	require.NoError(t, err)
	t.Cleanup(func() { b.cleanup("delete", "namespace", b.ns+"-memory", "--wait=false") })
	memory := &apply.ConfigMapMemory{Client: client, Namespace: b.ns + "-memory", Name: "deletions"}
	holds := func(want, at string) {
		t.Helper()
		data, version, err := memory.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{want, at}, []string{string(data), version})
	}
	holds("", "")
	first, err := memory.Save(t.Context(), []byte("1"), "")
	require.NoError(t, err, "the namespace is made, too")
	holds("1", first)
	_, err = memory.Save(t.Context(), []byte("2"), "")
	require.Error(t, err, "something is saved")
	second, err := memory.Save(t.Context(), []byte("3"), first)
	require.NoError(t, err)
	_, err = memory.Save(t.Context(), []byte("4"), first)
	require.Error(t, err, "another program has saved since")
	holds("3", second)
}
