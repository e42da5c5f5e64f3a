package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// TestAWriteHoldsForTheVersionThatItWasMadeFrom has a person who changes an object after its
// desired state was made from it.
func TestAWriteHoldsForTheVersionThatItWasMadeFrom(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*bench, *testing.T) *agent{"apply": (*bench).start, "replace": (*bench).startUpsert} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverBench(t)
			a := start(b, t)
			id := apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "read"}
			set := func(value, version string) *apply.Set { return b.from(t, id, value, version) }
			read := func(path string) string {
				return b.kubectl(t, "get", "-n", b.ns, "configmap", "read", "-o", "jsonpath={"+path+"}")
			}
			require.Equal(t, 1, apply1(t, a, set("1", "")).Count(apply.Created), "of no version: it does not exist")
			version := read(".metadata.resourceVersion")
			b.kubectl(t, "patch", "-n", b.ns, "configmap", "read", "--type=merge", "-p", `{"data":{"a":"theirs"}}`)
			a.waitWoken(t, "ConfigMap", "read")
			for _, value := range []string{"1", "2"} {
				report, err := a.Apply(t.Context(), set(value, version))
				require.True(t, apierrors.IsConflict(err), "%v", err)
				require.Equal(t, 1, report.Count(apply.Failed))
				require.Equal(t, "theirs", read(".data.a"))
			}
			require.Equal(t, 1, apply1(t, a, set("2", read(".metadata.resourceVersion"))).Count(apply.Updated))
			require.Equal(t, "2", read(".data.a"))
			require.Equal(t, 1, apply1(t, a, set("2", version)).Unchanged, "nothing is written, so no version matters")
			b.kubectl(t, "delete", "-n", b.ns, "configmap", "read")
			a.waitWoken(t, "ConfigMap", "read")
			require.Equal(t, 1, apply1(t, a, set("3", version)).Count(apply.Created), "no other has changed it: it is gone")
		})
	}
}

// from is a set with a ConfigMap that was made from a version.
func (b *bench) from(t *testing.T, id apply.ID, value, version string) *apply.Set {
	t.Helper()
	objects := b.objects(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+id.Name+`, namespace: `+b.ns+`}, data: {a: "`+value+`"}}`)
	set, err := apply.NewSet(b.owner, objects, apply.SetOptions{From: map[apply.ID]string{id: version}})
	require.NoError(t, err)
	return set
}

// TestAVersionMakesNoObjectOurs has an object of others, in the version that a set was made from.
func TestAVersionMakesNoObjectOurs(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	b.kubectl(t, "create", "-n", b.ns, "configmap", "theirs", "--from-literal=a=theirs")
	version := b.kubectl(t, "get", "-n", b.ns, "configmap", "theirs", "-o", "jsonpath={.metadata.resourceVersion}")
	_, err := a.Apply(t.Context(), b.from(t, apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "theirs"}, "1", version))
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Equal(t, "theirs", b.kubectl(t, "get", "-n", b.ns, "configmap", "theirs", "-o", "jsonpath={.data.a}"))
}

// TestAVersionIsOlderThanTheLossOfALabel has a person who removes a field, and then the label of
// the owner.
func TestAVersionIsOlderThanTheLossOfALabel(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	id := apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "read"}
	require.Equal(t, 1, apply1(t, a, b.from(t, id, "1", "")).Count(apply.Created))
	read := func(path string) string {
		return b.kubectl(t, "get", "-n", b.ns, "configmap", "read", "-o", "jsonpath={"+path+"}")
	}
	version := read(".metadata.resourceVersion")
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "read", "--type=merge", "-p", `{"data":{"a":null,"b":"theirs"}}`)
	a.waitWoken(t, "ConfigMap", "read")
	b.kubectl(t, "label", "-n", b.ns, "configmap", "read", "example.com/owner-")
	a.waitWoken(t, "ConfigMap", "read")
	_, err := a.Apply(t.Context(), b.from(t, id, "1", version))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, `{"b":"theirs"}`, read(".data"))
	require.Equal(t, 1, apply1(t, a, b.from(t, id, "1", read(".metadata.resourceVersion"))).Count(apply.Updated))
	require.Equal(t, "1", read(".data.a"))
}
