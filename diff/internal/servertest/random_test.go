package servertest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// everything is a schema with each way of merging, in each other.
const everything = `
types:
- name: type
  map:
    fields:
    - {name: scalar, type: {scalar: numeric}}
    - {name: text, type: {scalar: string}}
    - {name: struct, type: {namedType: struct}}
    - {name: map, type: {map: {elementType: {scalar: string}}}}
    - {name: mapOfStructs, type: {map: {elementType: {namedType: struct}}}}
    - {name: atomicMap, type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: atomicStruct, type: {map: {fields: [{name: a, type: {scalar: numeric}}, {name: b, type: {scalar: string}}], elementRelationship: atomic}}}
    - {name: atomicList, type: {list: {elementType: {scalar: numeric}, elementRelationship: atomic}}}
    - {name: set, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
    - {name: things, type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [name]}}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
- name: struct
  map:
    fields:
    - {name: a, type: {scalar: numeric}}
    - {name: b, type: {scalar: string}}
    - {name: set, type: {list: {elementType: {scalar: numeric}, elementRelationship: associative}}}
- name: item
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: value, type: {scalar: numeric}}
    - {name: struct, type: {namedType: struct}}
    - {name: list, type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
- name: port
  map:
    fields:
    - {name: port, type: {scalar: numeric}}
    - {name: protocol, default: TCP, type: {scalar: string}}
    - {name: name, type: {scalar: string}}
`

// TestRandomWritersAgreeWithTheServer lets appliers and updaters write random
// objects in turns, and asks after each write. TRUEUP_SEED chooses another run:
// a number, or "random".
func TestRandomWritersAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	seed := uint64(1)
	switch wish := os.Getenv("TRUEUP_SEED"); wish {
	case "":
	case "random":
		seed = rand.Uint64() //nolint:gosec // any number will do
	default:
		var err error
		seed, err = strconv.ParseUint(wish, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("TRUEUP_SEED=%d", seed)
	random := &generator{rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a seed is wanted
	s := newServer(t)
	known := schemas{"everything": {types: everything, root: "type"}}
	openAPI, err := known.open("everything", "type")
	require.NoError(t, err)
	require.NoError(t, s.define(t, replayGroup, kindOf("everything"), []any{map[string]any{
		"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": openAPI},
	}}))
	questions, agreed, writes, ambiguous := 0, 0, 0, 0
	for i := range 40 {
		r := &replay{server: s, name: fmt.Sprintf("random-%d", i), seq: sequence{parser: "everything"}, applied: map[string]*applied{}}
		for j := range 6 {
			o := random.op(j == 0)
			r.seq.name = fmt.Sprintf("TRUEUP_SEED=%d, object %d, after write %d (%s by %s)", seed, i, j, o.kind, o.manager)
			r.seq.ops = []op{o}
			require.Empty(t, r.run(t))
			writes++
			asked, right := r.judgeAll(t)
			questions += asked
			agreed += right
		}
		ambiguous += r.ambiguous
		if t.Failed() {
			break // one object tells enough
		}
	}
	t.Logf("figure diff_random_writes %d writes", writes)
	t.Logf("figure diff_random_questions %d questions", questions)
	t.Logf("figure diff_random_agreed %d questions", agreed)
	t.Logf("figure diff_random_ambiguous %d questions", ambiguous)
}

type generator struct{ *rand.Rand }

func (g *generator) op(first bool) op {
	o := op{kind: "ForceApply", version: "v1", object: text(g.root()), manager: g.pick("one", "two", "three")}
	if !first && g.IntN(3) == 0 {
		o.kind, o.manager = "Update", g.pick("one", "editor", "controller")
	}
	return o
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// fields fills a map by chance.
func (g *generator) fields(m map[string]any, all map[string]func() any) map[string]any {
	for _, name := range sorted(all) {
		if g.IntN(2) == 0 {
			m[name] = all[name]()
		}
	}
	return m
}

func (g *generator) root() map[string]any {
	return g.fields(map[string]any{}, map[string]func() any{
		"scalar": g.number, "text": g.text, "struct": g.structure, "map": g.texts, "mapOfStructs": func() any {
			// Never empty: an owned empty map does not show whether it is an item
			// of a map or a field of a struct.
			item := func() any { m := g.structure().(map[string]any); m["a"] = g.number(); return m }
			return g.fields(map[string]any{}, map[string]func() any{"x": item, "y": item})
		},
		"atomicMap":    g.texts,
		"atomicStruct": func() any { return g.fields(map[string]any{}, map[string]func() any{"a": g.number, "b": g.text}) },
		"atomicList":   func() any { return g.list(3, func(int) any { return g.number() }) },
		"set":          func() any { return g.list(3, func(i int) any { return string(rune('a' + i)) }) },
		"things": func() any {
			return g.list(3, func(i int) any {
				return g.fields(map[string]any{"name": string(rune('a' + i))}, map[string]func() any{
					"value": g.number, "struct": g.structure, "ports": g.ports,
					"list": func() any { return g.list(2, func(int) any { return g.text() }) },
				})
			})
		},
		"ports": g.ports,
	})
}

func (g *generator) number() any { return g.IntN(3) }

func (g *generator) text() any { return g.pick("", "u", "v") }

func (g *generator) texts() any {
	return g.fields(map[string]any{}, map[string]func() any{"x": g.text, "y.z/w": g.text})
}

func (g *generator) structure() any {
	return g.fields(map[string]any{}, map[string]func() any{
		"a": g.number, "b": g.text, "set": func() any { return g.list(3, func(i int) any { return i }) },
	})
}

// list makes a list of some of n items, in any order.
func (g *generator) list(n int, item func(int) any) any {
	found := []any{}
	for _, i := range g.Perm(n) {
		if g.IntN(2) == 0 {
			found = append(found, item(i))
		}
	}
	return found
}

func (g *generator) ports() any {
	return g.list(3, func(i int) any {
		port := []map[string]any{{"port": 53}, {"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}}[i]
		return g.fields(port, map[string]func() any{"name": g.text})
	})
}
