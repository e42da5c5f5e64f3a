package apply //nolint:testpackage // views show what a test gives them

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// toSecret hands data.k of a ConfigMap to the Secret of the same name.
func toSecret(t *testing.T) SetOptions {
	t.Helper()
	fields, err := diff.NewIgnore(diff.Rule{Kind: "ConfigMap", Paths: []string{".data.k"}})
	require.NoError(t, err)
	return SetOptions{Handover: []Handover{
		{Fields: fields, By: func(ID) ID { return ID{} }},
		{Fields: fields, By: func(id ID) ID { return ID{Kind: "Secret", Namespace: id.Namespace, Name: id.Name} }},
	}}
}

func stating(t *testing.T, options SetOptions, kinds ...string) *Set {
	t.Helper()
	objects := make([]*unstructured.Unstructured, len(kinds))
	for i, kind := range kinds {
		objects[i] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "a", "namespace": "shop"},
			"data": map[string]any{"k": "", "l": ""},
		}}
	}
	set, err := NewSet(program, objects, options)
	require.NoError(t, err)
	return set
}

func TestAFieldIsLeftToAControllerThatTheSetConfigures(t *testing.T) {
	t.Parallel()
	options := toSecret(t)
	data := func(set *Set, of func(*item) map[string]any) any {
		return of(set.item(mapID("a")))["data"]
	}
	body := func(it *item) map[string]any { return it.body.Decode() }
	both := stating(t, options, "ConfigMap", "Secret")
	require.Equal(t, map[string]any{"l": ""}, data(both, body))
	require.Equal(t, map[string]any{"k": "", "l": ""}, data(both, func(it *item) map[string]any { return it.create.Decode() }))
	alone := stating(t, options, "ConfigMap")
	require.Equal(t, map[string]any{"k": "", "l": ""}, data(alone, body))
	require.Equal(t, both.item(mapID("a")).hash, alone.handedOver(alone.item(mapID("a"))).hash, "either way it is the same object")
	require.Nil(t, stating(t, SetOptions{}, "ConfigMap").item(mapID("a")).handed)

	options.Handover = options.Handover[:1]
	require.Equal(t, map[string]any{"k": "", "l": ""}, data(stating(t, options, "ConfigMap", "Secret"), body), "By names none")
	options.Handover[0].By = nil
	_, err := NewSet(program, nil, options)
	require.EqualError(t, err, "apply: SetOptions.Handover[0].By: is required")
}

// handing returns a stage whose server takes each write, and a set that hands a field of its ConfigMap to a Secret.
func handing(t *testing.T) (*stage, *Set) {
	t.Helper()
	s := newStage(t, program, configMapKind, secretKind)
	s.patches = func(string, string) error { return nil }
	return s, stating(t, toSecret(t), "ConfigMap")
}

// TestAFieldComesBackWhenItsControllerIsProvenToBeGone and not before.
func TestAFieldComesBackWhenItsControllerIsProvenToBeGone(t *testing.T) {
	t.Parallel()
	s, set := handing(t)
	var woken []ID
	s.Live.OnDrift = func(o Observed) { woken = append(woken, o.ID) }
	id := ID{Kind: "Secret", Namespace: "shop", Name: "a"}
	form := func() string {
		t.Helper()
		report, err := s.Apply(t.Context(), set)
		require.NoError(t, err)
		require.Equal(t, 1, report.Count(Created)+report.Count(Updated)+report.Unchanged)
		it := set.item(mapID("a"))
		look := s.Live.registry.view(configMapKind).Look(it.at)
		switch look.Record.Hash() {
		case it.hash:
			return "stated"
		case set.handedOver(it).hash:
			return "left"
		default:
			return "unknown"
		}
	}
	require.Equal(t, "stated", form(), "there is none")
	end := s.fails(secretKind)
	require.Equal(t, "stated", form(), "there may be one: it stays where it is")
	end()
	s.see(secretKind)
	s.show(id, nil)
	require.Equal(t, "left", form(), "there is one")
	end = s.fails(secretKind)
	require.Equal(t, "left", form(), "there may still be one")
	end()
	require.NotContains(t, woken, mapID("a"))
	s.see(secretKind)
	require.Contains(t, woken, mapID("a"), "a pass gives it back")
	require.Equal(t, "stated", form(), "there is none any more")

	s.show(id, nil)
	require.Equal(t, "left", form())
	_, err := s.Delete(t.Context(), []ID{id}, DeleteOptions{})
	require.NoError(t, err)
	require.Equal(t, "stated", form(), "its deletion was accepted, although the view still shows it")
}

// TestAFieldComesBackWhenADoubtEnds begins as a program that was ended between the deletion of a controller and the apply
// that would have stated its field again.
func TestAFieldComesBackWhenADoubtEnds(t *testing.T) {
	t.Parallel()
	s, set := handing(t)
	var woken []ID
	s.Live.OnDrift = func(o Observed) { woken = append(woken, o.ID) }
	it := set.item(mapID("a"))
	hash := func() diff.Sum {
		look := s.Live.registry.view(configMapKind).Look(it.at)
		return look.Record.Hash()
	}
	s.show(mapID("a"), func(m *metav1.PartialObjectMetadata) {
		m.Annotations = map[string]string{program.hashAnnotation(): set.handedOver(it).hash.String()}
	})
	require.Equal(t, set.handedOver(it).hash, hash())
	delete(s.Live.registry.kinds, secretKind)
	s.Live.registry.add(secretKind, "") // nothing was seen of it yet
	s.fails(secretKind)()
	require.Error(t, s.Live.registry.view(secretKind).Known().Doubt())
	_, err := s.Apply(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, set.handedOver(it).hash, hash(), "there may be a controller")
	woken = nil
	s.see(secretKind)
	require.Equal(t, []ID{mapID("a")}, woken)
	p, err := s.begin(t.Context(), set)
	require.NoError(t, err)
	p.wakeAtHandBack(it)
	p.done()
	require.Len(t, woken, 2, "a pass saw a controller that has gone meanwhile")
	_, err = s.Apply(t.Context(), set)
	require.NoError(t, err)
	require.Equal(t, it.hash, hash())
}
