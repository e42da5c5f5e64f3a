package apply //nolint:testpackage // views show what a test gives them

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// grouped is an owner with an ApplySet, whose parent is one of the ConfigMaps.
func grouped(partLabel string) Owner {
	owner := program
	owner.ApplySet, owner.PartLabel = mapID("all"), partLabel
	return owner
}

// parentShown shows the parent of the ApplySet with these members.
func (s *stage) parentShown(kinds, namespaces string) {
	s.t.Helper()
	s.show(mapID("all"), func(m *metav1.PartialObjectMetadata) {
		m.Annotations = map[string]string{applySetKinds: kinds, applySetNamespaces: namespaces}
		m.ManagedFields[0].FieldsV1 = annotated
	})
}

// annotated are the fields of a parent that we have written.
var annotated = &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:annotations":{"f:applyset.kubernetes.io/contains-group-kinds":{}}}}`)}

// parentOf begins a pass and returns what it would state in the parent.
func (s *stage) parentOf(set *Set) map[string]string {
	s.t.Helper()
	p, err := s.begin(s.t.Context(), set)
	require.NoError(s.t, err)
	defer p.done()
	var annotations map[string]string
	for items := range set.ranks() {
		for i := range items {
			if it := p.item(&items[i]); it.id == set.owner.ApplySet {
				metadata := it.body.Decode()["metadata"].(map[string]any)["annotations"].(map[string]any)
				annotations = map[string]string{}
				for _, key := range []string{applySetKinds, applySetNamespaces, program.Domain + applySetPartial} {
					if value, ok := metadata[key].(string); ok {
						annotations[key] = value
					}
				}
			}
		}
	}
	require.NotNil(s.t, annotations)
	return annotations
}

func (s *stage) watched() (kinds []string) {
	for _, v := range s.Live.registry.views() {
		kinds = append(kinds, v.GroupKind().String())
	}
	return kinds
}

// A parent that says so, or that others have edited, does not list all kinds.
func TestAPruneFailsWhileTheParentIsPartial(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*metav1.PartialObjectMetadata){
		"it says so": func(m *metav1.PartialObjectMetadata) {
			m.ManagedFields[0].FieldsV1 = annotated
			m.Annotations["example.com/group-kinds-partial"] = "true"
		},
		"a person has edited it": func(m *metav1.PartialObjectMetadata) {
			m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "kubectl-annotate", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: annotated,
			})
		},
		"its managedFields are gone": func(m *metav1.PartialObjectMetadata) { m.ManagedFields = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, grouped(""), configMapKind, secretKind)
			s.Live.Discovery = resources{namespaced("secrets", "Secret")}
			s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				return nil, errors.New("the server is down")
			}
			s.show(mapID("all"), func(m *metav1.PartialObjectMetadata) {
				m.Annotations = map[string]string{applySetKinds: "ConfigMap"}
				change(m)
			})
			_, err := s.Prune(t.Context(), s.set(SetOptions{}, mapID("a")), whole)
			require.ErrorIs(t, err, ErrNotSynced)
			require.ErrorContains(t, err, "secrets: the server is down")
		})
	}
}

func TestNothingIsLeftOnlyOfKindsThatAreWatched(t *testing.T) {
	t.Parallel()
	owner := program
	owner.PartLabel = "part"
	s := newStage(t, owner)
	for range 2 {
		_, err := s.DeletePart(t.Context(), "p", DeleteOptions{})
		require.ErrorIs(t, err, ErrNotSynced)
		require.ErrorContains(t, err, "no kind is watched, so no object can be seen: Live.Kinds or Owner.ApplySet names them")
		_, done := s.Live.registry.useNow(widgetKind)
		done() // it was watched for a moment
	}
}

// A right to list that was lost proves nothing. Without a right to get, too, we could not have
// applied an object.
func TestAKindThatMayNotBeListedMayHaveObjects(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right"))
	in := func(namespace string) func(string) (*metav1.PartialObjectMetadata, error) {
		return func(asked string) (*metav1.PartialObjectMetadata, error) {
			if asked == namespace {
				return &metav1.PartialObjectMetadata{}, nil
			}
			return nil, refused
		}
	}
	secrets := namespaced("secrets", "Secret")
	tenants := metav1.APIResource{Name: "tenants", Kind: "Tenant", Verbs: secrets.Verbs}
	for name, test := range map[string]struct {
		kind metav1.APIResource
		get  func(namespace string) (*metav1.PartialObjectMetadata, error)
		want string
	}{
		"there is no such object":              {secrets, nil, "secrets: secrets is forbidden"},
		"in the namespace of the parent":       {secrets, in("shop"), "secrets: secrets is forbidden"},
		"in none":                              {secrets, in("none"), ""},
		"of a kind without namespaces":         {tenants, in(""), "tenants: secrets is forbidden"},
		"of a kind without namespaces, not so": {tenants, in("shop"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, grouped(""), configMapKind, secretKind)
			s.Live.Discovery, s.gets = resources{test.kind}, test.get
			s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) { return nil, refused }
			_, err := s.Prune(t.Context(), s.set(SetOptions{}, mapID("a")), whole)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestAKindThatACallUsesStaysWatched(t *testing.T) {
	t.Parallel()
	s := newStage(t, program)
	_, first := s.Live.registry.useNow(widgetKind)
	_, second := s.Live.registry.useNow(widgetKind)
	first()
	require.Equal(t, []string{"Widget.example.com"}, s.watched(), "another call relies on it")
	second()
	require.Empty(t, s.watched(), "it was never seen, and no set states it")
}

func TestAKindIsWatchedAsLongAsTheParentStatesIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped(""), configMapKind, widgetKind)
	s.parentShown("Secret,Widget.example.com", "")
	_, done := s.Live.registry.useNow()
	done()
	require.Equal(t, []string{"ConfigMap", "Secret", "Widget.example.com"}, s.watched())
	s.parentShown("Secret", "")
	require.Equal(t, []string{"ConfigMap", "Secret"}, s.watched(), "one was seen, is empty, and is not stated any more")
	require.ErrorIs(t, s.Live.Unseen(), ErrNotSynced)
	s.Live.Mapper = newStage(t, program, secretKind).Live.Mapper
	_, done = s.Live.registry.useNow()
	s.see(secretKind)
	done()
	s.parentShown("", "")
	require.Equal(t, []string{"ConfigMap"}, s.watched())
}

// Another manager may have taken kinds out.
func TestAKindThatAPartialParentDoesNotNameStaysWatched(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped(""), configMapKind, secretKind, widgetKind)
	s.parentShown("Secret,Widget.example.com", "")
	s.show(mapID("all"), func(m *metav1.PartialObjectMetadata) {
		m.Annotations = map[string]string{applySetKinds: "Secret"}
	})
	_, done := s.Live.registry.useNow()
	done()
	require.Equal(t, []string{"ConfigMap", "Secret", "Widget.example.com"}, s.watched())
}

// A restored backup of the cluster may have a parent that names other kinds.
func TestTheParentIsOverwrittenAsItWasSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped(""), configMapKind)
	s.parentShown("ConfigMap", "")
	seen := s.version
	restored := s.parentAs("Secret,ConfigMap", strconv.Itoa(seen+50))
	s.gets = func(string) (*metav1.PartialObjectMetadata, error) { return restored, nil }
	set := s.set(SetOptions{}, mapID("a"))

	_, err := s.Plan(t.Context(), set, PruneOptions{})
	require.ErrorIs(t, err, ErrNotSynced)
	require.ErrorContains(t, err, "the ApplySet's parent has changed, and may name other kinds")
	require.Equal(t, []string{"ConfigMap", "Secret"}, s.watched(), "what it names is looked at")
	require.NotContains(t, s.patched, "configmaps all")

	s.patches = func(_, name string) error {
		if name == "all" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, name, errors.New("changed"))
		}
		return nil
	}
	_, err = s.Apply(t.Context(), set)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	for i, name := range s.patched {
		if name == "configmaps all" {
			require.Contains(t, s.bodies[i], fmt.Sprintf(`"resourceVersion":"%d"`, seen))
		}
	}
	require.Contains(t, s.patched, "configmaps all")
}

// parentAs returns a parent that we have written, in a version that no view shows.
func (s *stage) parentAs(kinds, version string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "all", Namespace: "shop", UID: types.UID("uid of " + mapID("all").String()), ResourceVersion: version,
		Labels: map[string]string{"owner": "me"}, Annotations: map[string]string{applySetKinds: kinds},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "me", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: annotated,
		}},
	}}
	return m
}

func TestAKindThatIsNotSeenAnyMoreStaysWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, program, configMapKind, secretKind)
		end := s.fails(secretKind)
		synctest.Wait()
		require.ErrorContains(t, s.Live.Unseen(), "Secret: the live state is not known: ")
		_, done := s.Live.registry.useNow()
		done()
		require.Equal(t, []string{"Secret"}, s.watched(), "objects may have been made since it was empty")
		end()
	})
}

func TestTheParentStatesWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped(""), configMapKind, secretKind)
	s.parentShown("", "")
	secret := ID{Kind: "Secret", Namespace: "shop", Name: "s"}
	require.Equal(
		t,
		"Secret",
		s.parentOf(s.set(SetOptions{}, secret))[applySetKinds],
		"the parent is no member, and its kind has no other object",
	)
	s.show(mapID("a"), nil)
	require.Equal(t, "ConfigMap,Secret", s.parentOf(s.set(SetOptions{}, secret))[applySetKinds], "an object is left")

	s.parentShown("Widget.example.com,Secret", "")
	require.Equal(t, "ConfigMap,Secret,Widget.example.com", s.parentOf(s.set(SetOptions{}, secret))[applySetKinds], "there may be objects")
}

func TestAPruneFailsWhileTheKindsOfBeforeAreUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, grouped(""), configMapKind, secretKind)
		prune := func() error {
			_, err := s.Prune(t.Context(), s.set(SetOptions{}, mapID("a")), whole)
			return err
		}
		require.ErrorIs(t, prune(), ErrNotSynced)
		require.ErrorContains(t, prune(),
			"the ApplySet's parent ConfigMap/shop/all is new, or not as it was written, so it does not list the kinds of before")
		s.parentShown("ConfigMap", "")
		require.ErrorIs(t, prune(), ErrNotSynced, "it was made just now")

		s.Live.Discovery = resources{namespaced("secrets", "Secret")}
		s.lists = func(string, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			return nil, errors.New("the server is down")
		}
		time.Sleep(firstDelay)
		require.ErrorContains(t, prune(), "secrets: the server is down")
		const partial = "example.com/group-kinds-partial"
		require.Equal(t, "true", s.parentOf(s.set(SetOptions{}, mapID("a")))[partial], "the next start must look, too")
		s.lists = nil
		require.ErrorIs(t, prune(), ErrNotSynced, "the look is not repeated on each pass")
		time.Sleep(firstDelay)
		require.NoError(t, prune())
		require.NotContains(t, s.parentOf(s.set(SetOptions{}, mapID("a"))), partial)
	})
}

func TestTheKindsOfBeforeAreKnownFromTheParentOrTheConfiguration(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped(""), configMapKind)
	s.parentShown("ConfigMap", "")
	_, err := s.Prune(t.Context(), s.set(SetOptions{}, mapID("a")), whole)
	require.NoError(t, err)

	s = newStage(t, grouped(""), configMapKind)
	s.Live.Kinds = []schema.GroupVersionKind{configMapKind.WithVersion("v1")}
	_, err = s.Prune(t.Context(), s.set(SetOptions{}, mapID("a")), whole)
	require.NoError(t, err)
}

func TestTheParentStatesTheKindsAndNamespacesOfAllParts(t *testing.T) {
	t.Parallel()
	s := newStage(t, grouped("part"), configMapKind, secretKind, widgetKind)
	s.parentShown("", "before")
	one := s.set(SetOptions{Part: "1"}, ID{Kind: "Secret", Namespace: "one", Name: "s"})
	two := s.set(SetOptions{Part: "2"}, ID{Group: "example.com", Kind: "Widget", Namespace: "two", Name: "w"})
	require.Equal(t, map[string]string{applySetKinds: "Secret", applySetNamespaces: "before,one"}, s.parentOf(one))
	for _, set := range []*Set{two, one} {
		got := s.parentOf(set)
		require.Equal(t, "before,one,two", got[applySetNamespaces])
		kinds := membersOf(got).kinds
		require.Contains(t, kinds, "Secret")
		require.Contains(t, kinds, "Widget.example.com")
	}
}

func TestAnEmptyPartKeepsTheKindsThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, parted(), configMapKind, secretKind)
		set := s.set(SetOptions{Part: "p"}, mapID("a"), ID{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"})
		_, done := s.use(set)
		// A kind that has failed is not waited for.
		end := s.fails(widgetKind)
		defer end()
		done()
		for range 2 {
			report, err := s.DeletePart(t.Context(), "p", DeleteOptions{})
			require.ErrorIs(t, err, ErrNotSynced, "nothing left is not concluded from nothing seen")
			require.Equal(t, []schema.GroupKind{widgetKind}, report.Unseen)
		}
	})
}

// parted is an owner with parts.
func parted() Owner {
	owner := program
	owner.PartLabel = "part"
	return owner
}

func TestAPartWithoutASetKeepsTheKindsOfItsObjectsOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, parted(), configMapKind, secretKind)
	s.show(mapID("kept"), func(m *metav1.PartialObjectMetadata) { m.Labels["part"] = "p" })
	_, done := s.use(s.set(SetOptions{Part: "p"}, mapID("kept"), ID{Kind: "Secret", Namespace: "shop", Name: "s"}))
	done()
	keeping := whole
	keeping.Keep = func(Observed) bool { return true }
	_, err := s.Prune(t.Context(), s.set(SetOptions{Part: "p"}, mapID("other")), keeping)
	require.NoError(t, err)
	require.Equal(t, []string{"ConfigMap", "Secret"}, s.watched(), "the part still has a set")
	_, err = s.Prune(t.Context(), s.set(SetOptions{Part: "p"}), keeping)
	require.NoError(t, err)
	require.Equal(t, []string{"ConfigMap"}, s.watched())
}

func TestAPartIsListedByItself(t *testing.T) {
	t.Parallel()
	s := newStage(t, parted(), configMapKind, secretKind)
	secret := ID{Kind: "Secret", Namespace: "shop", Name: "s"}
	of := func(part string) func(*metav1.PartialObjectMetadata) {
		return func(m *metav1.PartialObjectMetadata) { m.Labels["part"] = part }
	}
	s.show(mapID("a"), of("p"))
	s.show(mapID("b"), of("q"))
	s.show(mapID("c"), nil)
	s.show(secret, of("p"))
	list := func(part string) (ids []ID) {
		for o := range s.Live.Part(part) {
			require.Equal(t, part, o.Part)
			ids = append(ids, o.ID)
		}
		slices.SortFunc(ids, ID.Compare)
		return ids
	}
	require.Equal(t, []ID{mapID("a"), secret}, list("p"))
	require.Equal(t, []ID{mapID("b")}, list("q"))
	require.Empty(t, list("r"))
	for range s.Live.Part("p") {
		break // which ends it
	}
	s.show(mapID("a"), of("q"))
	require.Equal(t, []ID{mapID("a"), mapID("b")}, list("q"))
	require.Len(t, slices.Collect(s.Live.All()), 4)
}
