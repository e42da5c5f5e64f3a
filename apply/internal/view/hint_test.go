package view //nolint:testpackage // plays the watch, as view_test.go does

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
)

// undivided is a view of an owner without parts, synced and empty.
func undivided(t *testing.T) *fixture {
	t.Helper()
	k := New(schema.GroupKind{Kind: "ConfigMap"}, &identity.Identity{Manager: "me"}, Hooks{})
	v := &fixture{k, k.Sink("")}
	require.NoError(t, v.Replace(nil, "10"))
	k.list("")
	return v
}

func numbered(i, made, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint(i), Namespace: "x", UID: types.UID(fmt.Sprintf("%d-%d", i, made)), ResourceVersion: fmt.Sprint(version),
	}}
}

// stating states the objects with these numbers.
func stating(hints []Hint, numbers []int) func() (Name, *Hint, bool) {
	return func() (Name, *Hint, bool) {
		if len(numbers) == 0 {
			return Name{}, nil, false
		}
		at := numbers[0]
		numbers = numbers[1:]
		return NameOf("x", fmt.Sprint(at)), &hints[at], true
	}
}

func TestAHintShowsWhatTheViewShowsInAnyHistory(t *testing.T) {
	t.Parallel()
	const objects = 8
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		v := undivided(t)
		var hints [objects]Hint
		made, version := [objects]int{}, 10
		for range 60 {
			i := random.IntN(objects)
			version++
			switch random.IntN(5) {
			case 0:
				require.NoError(t, v.Drop(numbered(i, made[i], version)))
				made[i]++
			case 1: // a list without the object
				var left []any
				for other := range objects {
					if other != i && v.Look(NameOf("x", fmt.Sprint(other))).Found {
						left = append(left, numbered(other, made[other], version))
					}
				}
				require.NoError(t, v.Replace(left, fmt.Sprint(version)))
				made[i]++
			default:
				require.NoError(t, v.Put(numbered(i, made[i], version)))
			}
			for at := range hints {
				n := NameOf("x", fmt.Sprint(at))
				require.Equal(t, v.Look(n), v.LookAt(n, &hints[at]), "seed %d", seed)
			}
			stated, others := map[Name]bool{}, map[Name]bool{}
			for at := range hints {
				if random.IntN(2) == 0 {
					stated[NameOf("x", fmt.Sprint(at))] = true
				}
			}
			marked := 0
			var marks []int
			for at := range hints {
				if stated[NameOf("x", fmt.Sprint(at))] {
					marks = append(marks, slices.Repeat([]int{at}, 1+random.IntN(2))...) // counts once
				}
			}
			v.Others(stating(hints[:], marks), func(*Record) { marked++ }, func(n Name, _ *Record) bool { others[n] = true; return true })
			v.Each(func(n Name, _ *Record) bool {
				require.Equal(t, !stated[n], others[n], "seed %d: %s", seed, n.Name())
				return true
			})
			require.Equal(t, v.Len(), marked+len(others), "seed %d", seed)
		}
	}
}

func TestAHintSparesTheSearch(t *testing.T) {
	t.Parallel()
	v := undivided(t)
	require.NoError(t, v.Put(numbered(0, 0, 11)))
	n, hint := NameOf("x", "0"), &Hint{}
	require.True(t, v.LookAt(n, hint).Found)
	records := v.records
	v.records = nil // a search would find nothing
	require.True(t, v.LookAt(n, hint).Found)
	require.False(t, v.LookAt(n, &Hint{}).Found)
	v.records = records
	require.NoError(t, v.Drop(numbered(0, 0, 12)))
	require.False(t, v.LookAt(n, hint).Found)
}

func TestOthersOfAKindThatIsNotSyncedAreNotYielded(t *testing.T) {
	t.Parallel()
	v := undivided(t)
	require.NoError(t, v.Put(numbered(0, 0, 11)))
	v.state = Unknown
	v.Others(func() (Name, *Hint, bool) { t.Error("asked for what is stated"); return Name{}, nil, false }, nil,
		func(Name, *Record) bool { t.Error("an object"); return false })
}

func TestOthersOfAPartAreItsObjectsUnlessAllAreStated(t *testing.T) {
	t.Parallel()
	const objects = 4
	all, some := 0, 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
		v, _ := newView(t)
		var hints [objects]Hint
		for version := range 30 {
			i := random.IntN(objects)
			m := numbered(i, 0, 11+version)
			m.Labels = map[string]string{"part": []string{"p", "q"}[random.IntN(2)]}
			if random.IntN(4) == 0 {
				require.NoError(t, v.Drop(m))
			} else {
				require.NoError(t, v.Put(m))
			}
			stated := random.IntN(1 << objects)
			have, left := map[Name]bool{}, map[Name]bool{}
			covered := true
			v.EachOf(PartOf("p"), func(n Name, _ *Record) bool {
				have[n] = true
				covered = covered && stated&(1<<(n.Name()[0]-'0')) != 0
				return true
			})
			var marks []int
			for at := range hints {
				if stated&(1<<at) != 0 {
					marks = append(marks, at)
				}
			}
			v.OthersOf(PartOf("p"), stating(hints[:], marks), func(n Name, _ *Record) bool { left[n] = true; return true })
			if covered {
				all++
				require.Empty(t, left, "seed %d", seed)
				continue
			}
			some++
			require.Equal(t, have, left, "seed %d", seed)
		}
	}
	require.Greater(t, min(all, some), 100)
}

func TestAListInNoOrderIsKeptInOrder(t *testing.T) {
	t.Parallel()
	v, _ := newView(t)
	var list []any
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(10) { //nolint:gosec // no secret
		m := numbered(i, 0, 11)
		m.Labels = map[string]string{"part": "p"}
		list = append(list, m)
	}
	require.NoError(t, v.Replace(list, "20"))
	var names string
	v.EachOf(PartOf("p"), func(n Name, _ *Record) bool { names += n.Name(); return true })
	require.Equal(t, "0123456789", names)
}
