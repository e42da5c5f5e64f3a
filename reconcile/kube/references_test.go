package kube_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// ref is a reference in the form "secrets/x", which is also the form of the
// annotation that holds those of an object.
func ref(text string) kube.Reference {
	kind, name, _ := strings.Cut(text, "/")
	resource := map[string]schema.GroupVersionResource{"widgets": widgets, "secrets": secrets, "configmaps": maps1}[kind]
	return kube.Reference{Resource: resource, Namespace: "shop", Name: name}
}

// refersTo reads the annotation. It panics when told to.
func refersTo(object metav1.Object) []kube.Reference {
	var list []kube.Reference
	for each := range strings.FieldsSeq(object.GetAnnotations()["refers"]) {
		if each == "panic" {
			panic("thirteen")
		}
		list = append(list, ref(each))
	}
	return list
}

// referring makes an object that refers to others, changed by each call.
func referring(w *world, object, refers string) {
	r := ref(object)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": map[schema.GroupVersionResource]string{widgets: "Widget", secrets: "Secret", maps1: "ConfigMap"}[r.Resource],
	}}
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	o.SetAnnotations(map[string]string{"refers": refers})
	w.put(r.Resource, o)
}

// chained is a controller whose objects, ConfigMaps and Secrets refer to each
// other by the annotation. The Secrets are kept as metadata.
func chained(w *world) (*kube.Controller[*widget], *passes) {
	c, p := watching(w)
	c.Referenced = []kube.Kind{{Resource: maps1, Whole: true}, {Resource: secrets}}
	c.References = func(o *widget) []kube.Reference { return refersTo(o) }
	c.ReferencesOf = func(_ kube.Reference, o *unstructured.Unstructured) []kube.Reference { return refersTo(o) }
	return c, p
}

func names(keys []types.NamespacedName) string {
	var list []string
	for _, key := range keys {
		list = append(list, key.Name)
	}
	return strings.Join(list, " ")
}

func TestAChangeAnywhereAlongAChainOfReferencesWakesWhatReachesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		referring(w, "widgets/a", "configmaps/runtime")
		referring(w, "widgets/b", "configmaps/runtime configmaps/runtime")
		referring(w, "widgets/c", "configmaps/other")
		referring(w, "configmaps/unused", "secrets/key")
		c, p := chained(w)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 0, b 0, c 0", p.take())
		require.Empty(t, c.Users(ref("secrets/key")))

		referring(w, "secrets/key", "")
		synctest.Wait()
		require.Empty(t, p.take(), "the middle does not exist yet")
		referring(w, "configmaps/runtime", "secrets/key")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "the middle appeared")
		require.Equal(t, "a b", names(c.Users(ref("secrets/key"))))
		w.change(secrets, keyOf("shop", "key"), label)
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "the end changed")
		w.remove(secrets, keyOf("shop", "key"))
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "the end went")
		referring(w, "secrets/key", "configmaps/deeper")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "a dangling reference found its target")
		referring(w, "configmaps/deeper", "")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "metadata is enough to refer")

		w.remove(maps1, keyOf("shop", "runtime"))
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "the middle went")
		referring(w, "configmaps/deeper", "")
		w.change(secrets, keyOf("shop", "key"), label)
		synctest.Wait()
		require.Empty(t, p.take(), "nothing leads there any more")
		require.Empty(t, c.Users(ref("configmaps/deeper")))
		referring(w, "configmaps/runtime", "")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "the middle is back, without its reference")

		referring(w, "configmaps/other", "configmaps/runtime")
		synctest.Wait()
		require.Equal(t, "c 0", p.take())
		referring(w, "configmaps/runtime", "secrets/key")
		synctest.Wait()
		require.Equal(t, "a 0, b 0, c 0", p.take())
		referring(w, "widgets/a", "")
		synctest.Wait()
		require.Equal(t, "a 0", p.take())
		w.change(maps1, keyOf("shop", "deeper"), label)
		synctest.Wait()
		require.Equal(t, "b 0, c 0", p.take(), "a refers to nothing now")
		require.NoError(t, stop())
	})
}

func TestCyclesOfReferencesAreHarmless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		referring(w, "widgets/a", "configmaps/x widgets/a")
		referring(w, "widgets/b", "widgets/a")
		referring(w, "configmaps/x", "configmaps/y configmaps/x")
		referring(w, "configmaps/y", "configmaps/x secrets/end widgets/b")
		c, p := chained(w)
		stop := run(t, c)
		synctest.Wait()
		p.take()
		referring(w, "secrets/end", "")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take())
		w.change(widgets, keyOf("shop", "b"), label)
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take(), "an object of the own kind is a step as any other")

		referring(w, "widgets/a", "")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take())
		referring(w, "configmaps/x", "configmaps/y")
		referring(w, "secrets/end", "")
		synctest.Wait()
		require.Empty(t, p.take(), "a cycle that nothing leads to")
		referring(w, "widgets/b", "configmaps/x")
		synctest.Wait()
		require.Equal(t, "b 0", p.take())
		referring(w, "secrets/end", "")
		synctest.Wait()
		require.Equal(t, "b 0", p.take(), "the cycle is in use again")
		require.NoError(t, stop())
	})
}

func TestAPanicOfReferencesOfIsTheErrorOfThatObjectAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		referring(w, "widgets/a", "configmaps/bad")
		referring(w, "widgets/b", "configmaps/good")
		referring(w, "configmaps/bad", "panic")
		referring(w, "configmaps/good", "secrets/key")
		c, p := chained(w)
		var log logbook
		c.Logger = textLogger(&log)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take())
		_, err := c.Lookup(ref("configmaps/bad"))
		require.ErrorContains(t, err, "kube: configmaps shop/bad: references: panic: thirteen")
		require.NotErrorIs(t, err, kube.ErrAbsent)
		require.Contains(
			t,
			log.String(),
			`msg="References callback failed" controller=widgets.example.com kind=configmaps key=shop/bad error="panic: thirteen`,
		)
		referring(w, "secrets/key", "")
		synctest.Wait()
		require.Equal(t, "b 0", p.take())
		referring(w, "configmaps/bad", "secrets/key")
		synctest.Wait()
		require.Equal(t, "a 0", p.take(), "it is better now")
		_, err = c.Lookup(ref("configmaps/bad"))
		require.NoError(t, err)
		referring(w, "secrets/key", "")
		synctest.Wait()
		require.Equal(t, "a 0, b 0", p.take())
		require.NoError(t, stop())
	})
}

// One list can show several changes of one chain, and wakes each user once.
func TestAListThatShowsManyChangesOfAChainWakesEachUserOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		referring(w, "widgets/a", "configmaps/m0")
		referring(w, "widgets/b", "configmaps/m5")
		for i := range 10 {
			referring(w, fmt.Sprintf("configmaps/m%d", i), fmt.Sprintf("configmaps/m%d", i+1))
		}
		c, p := chained(w)
		stop := run(t, c)
		synctest.Wait()
		p.take()
		w.hold(maps1, true)
		for i := range 5 {
			referring(w, fmt.Sprintf("configmaps/m%d", i+5), "")
		}
		referring(w, "configmaps/m0", "configmaps/m9")
		w.remove(maps1, keyOf("shop", "m2"))
		w.cut(true) // the watch has shown none of them
		w.hold(maps1, false)
		time.Sleep(time.Minute)
		require.Equal(t, "a 0, b 0", p.take())
		require.Equal(t, "a", names(c.Users(ref("configmaps/m9"))))
		require.NoError(t, stop())
	})
}

// modelWorld reads the state of the world as the dumb model of the graph.
type modelWorld struct{ w *world }

func (m modelWorld) refers(r kube.Reference) []kube.Reference {
	if o := m.w.get(r.Resource, keyOf(r.Namespace, r.Name)); o != nil {
		return refersTo(o)
	}
	return nil
}

// reached returns the objects that a widget reaches, in at least one step.
func (m modelWorld) reached(name string) map[kube.Reference]bool {
	reached := map[kube.Reference]bool{}
	for todo := m.refers(ref("widgets/" + name)); len(todo) > 0; todo = todo[1:] {
		if !reached[todo[0]] {
			reached[todo[0]] = true
			todo = append(todo, m.refers(todo[0])...)
		}
	}
	return reached
}

// users returns the names of the widgets that reach an object.
func (m modelWorld) users(r kube.Reference) []string {
	var list []string
	for _, o := range m.w.all(widgets) {
		if m.reached(o.GetName())[r] {
			list = append(list, o.GetName())
		}
	}
	slices.Sort(list)
	return list
}

var graphObjects = func() (list []string) {
	for _, kind := range []string{"widgets", "configmaps", "secrets"} {
		for i := range 6 {
			list = append(list, fmt.Sprintf("%s/%s%d", kind, kind[:1], i))
		}
	}
	return list
}()

func randomObject(random *rand.Rand) string {
	return graphObjects[random.IntN(len(graphObjects))]
}

// randomReference changes or removes an object.
func randomReference(w *world, random *rand.Rand, object string) {
	if r := ref(object); random.IntN(4) == 0 {
		w.remove(r.Resource, keyOf(r.Namespace, r.Name))
		return
	}
	var refers []string
	for range random.IntN(4) {
		refers = append(refers, randomObject(random))
	}
	referring(w, object, strings.Join(refers, " "))
}

// TestAChangeWakesExactlyWhatReachesIt changes random graphs and compares after
// each change the woken objects, and every 50 steps all users, with the dumb model.
func TestAChangeWakesExactlyWhatReachesIt(t *testing.T) {
	t.Parallel()
	for range 10 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				w := newWorld()
				model := modelWorld{w}
				c, p := chained(w)
				stop := run(t, c)
				synctest.Wait()
				for step := range 500 {
					object := randomObject(random)
					before, version := model.users(ref(object)), w.version
					randomReference(w, random, object)
					synctest.Wait()
					woken := map[string]bool{}
					if w.version != version {
						for _, each := range slices.Concat(before, model.users(ref(object))) {
							woken[each] = true
						}
						if kind, name, _ := strings.Cut(object, "/"); kind == "widgets" {
							woken[name] = true
						}
					}
					want := slices.Sorted(maps.Keys(woken))
					for i, name := range want {
						if want[i] += " 0"; w.get(widgets, keyOf("shop", name)) == nil {
							want[i] = name + " absent"
						}
					}
					require.Equal(t, strings.Join(want, ", "), p.take(), "step %d, %s", step, object)
					if step%50 == 0 {
						for _, each := range graphObjects {
							require.Equal(t, strings.Join(model.users(ref(each)), " "), names(c.Users(ref(each))), "step %d, users of %s", step, each)
						}
					}
				}
				for _, each := range graphObjects {
					w.remove(ref(each).Resource, keyOf("shop", ref(each).Name))
				}
				synctest.Wait()
				require.Zero(t, c.ReferenceNodes(), "nothing is kept of what is gone")
				require.NoError(t, stop())
			})
		})
	}
}

// TestNoChangeAlongAChainIsLostWhateverTheWatchesDo does the same while watches
// are cut, expire, stand still and fail. In the end the last pass of each object
// must have seen all that it reaches.
func TestNoChangeAlongAChainIsLostWhateverTheWatchesDo(t *testing.T) {
	t.Parallel()
	for range 10 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomGraph(t, seed) })
		})
	}
}

func randomGraph(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld()
	c, _ := chained(w)
	c.Workers = 3
	var mu sync.Mutex
	seen := map[string]map[kube.Reference]string{}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		reached := map[kube.Reference]string{}
		if o != nil {
			for todo := refersTo(o); len(todo) > 0; todo = todo[1:] {
				if _, ok := reached[todo[0]]; ok {
					continue
				}
				reached[todo[0]] = "absent"
				var found metav1.Object
				var err error
				if todo[0].Resource == widgets {
					found, err = c.Get(keyOf("shop", todo[0].Name))
				} else {
					found, err = c.Lookup(todo[0])
				}
				if err == nil {
					reached[todo[0]] = found.GetResourceVersion()
					todo = append(todo, refersTo(found)...)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[key.Name] = reached; o == nil {
			delete(seen, key.Name)
		}
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	for range 1000 {
		if random.IntN(8) == 0 {
			disturb(w, random)
		} else {
			randomReference(w, random, randomObject(random))
		}
		if random.IntN(200) == 0 {
			require.NoError(t, stop())
			stop = run(t, c)
		}
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	for i := range 3 {
		w.fails(kinds(i), nil)
		w.hold(kinds(i), false)
	}
	time.Sleep(10 * time.Minute)

	model := modelWorld{w}
	want := map[string]map[kube.Reference]string{}
	for _, o := range w.all(widgets) {
		reached := map[kube.Reference]string{}
		for r := range model.reached(o.GetName()) {
			reached[r] = "absent"
			if found := w.get(r.Resource, keyOf(r.Namespace, r.Name)); found != nil {
				reached[r] = found.GetResourceVersion()
			}
		}
		want[o.GetName()] = reached
	}
	mu.Lock()
	require.Equal(t, want, seen, "seed %d", seed)
	mu.Unlock()
	for _, each := range graphObjects {
		require.Equal(t, strings.Join(model.users(ref(each)), " "), names(c.Users(ref(each))), "users of %s", each)
	}
	require.NoError(t, stop())
}
