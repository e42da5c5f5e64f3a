package kube

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// referenceGraph holds which object refers to which, to any depth, so that a
// change leads back to the objects of the Controller's own kind that reach it.
//
// An edge is attached, which is to say that it is found from its end, while its
// beginning is in use: an own object, or the end of another attached edge. What
// no own object reaches is therefore not visited, however much of it there is. A
// cycle that goes out of use stays attached until one of its objects changes what
// it refers to. It then costs a visit and wakes nothing.
type referenceGraph struct {
	own   schema.GroupVersionResource
	kinds map[schema.GroupVersionResource]*kindNodes
}

// kindNodes are the nodes of one kind.
type kindNodes struct {
	own   bool
	nodes map[types.NamespacedName]*node
}

// node is an object that refers to another or is referred to, whether or not it
// exists.
type node struct {
	kind  *kindNodes
	key   types.NamespacedName
	edges []edge  // to what it refers to
	users []*edge // the attached edges that end here
	named int     // how many edges end here, attached or not
}

// edge is one reference. It stays at its address, in node.edges.
type edge struct {
	from, to *node
	at       int // its index in to.users while it is attached
}

func (n *node) inUse() bool { return n.kind.own || len(n.users) > 0 }

// wakeSet collects the keys to reconcile because of one or several changes.
type wakeSet struct {
	keys    map[types.NamespacedName]bool
	visited map[*node]bool
}

func (w *wakeSet) add(key types.NamespacedName) {
	if w.keys == nil {
		w.keys = map[types.NamespacedName]bool{}
	}
	w.keys[key] = true
}

// visit reports whether a node is visited for the first time.
func (w *wakeSet) visit(n *node) bool {
	if w.visited[n] {
		return false
	}
	if w.visited == nil {
		w.visited = map[*node]bool{}
	}
	w.visited[n] = true
	return true
}

// addUsers adds to found the keys of the own objects that reach the object of
// reference.
//
// It may be called for several changes with one wakeSet, before the edges of each
// are set. A path from an own object to a changed object begins with edges that
// the changes leave as they are, up to the first changed object on it. The own
// object is thus found from there, although nodes visited earlier are passed over.
func (g *referenceGraph) addUsers(found *wakeSet, reference Reference) {
	start := g.find(reference)
	if start == nil || !found.visit(start) {
		return
	}
	for todo := []*node{start}; len(todo) > 0; {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range n.users {
			if e.from.kind.own {
				found.add(e.from.key)
			}
			if len(e.from.users) > 0 && found.visit(e.from) {
				todo = append(todo, e.from)
			}
		}
	}
}

// set replaces what an object refers to.
func (g *referenceGraph) set(object Reference, references []Reference) {
	n := g.find(object)
	if n == nil {
		if len(references) == 0 {
			return
		}
		n = g.ensure(object)
	}
	if g.same(n.edges, references) {
		return
	}
	old := n.edges
	n.edges = nil
	if len(references) > 0 {
		n.edges = make([]edge, len(references))
	}
	for i, r := range references {
		to := g.ensure(r)
		to.named++
		n.edges[i] = edge{from: n, to: to}
	}
	// The new edges first: what stays in use is not detached in between.
	if n.inUse() {
		attach(n.edges)
		detach(old)
	}
	for i := range old {
		old[i].to.named--
		old[i].to.dropUnused()
	}
	n.dropUnused()
}

func (g *referenceGraph) same(edges []edge, references []Reference) bool {
	if len(edges) != len(references) {
		return false
	}
	for i, r := range references {
		if to := edges[i].to; to.key != r.key() || to.kind != g.kinds[r.Resource] {
			return false
		}
	}
	return true
}

func (g *referenceGraph) find(r Reference) *node {
	kind := g.kinds[r.Resource]
	if kind == nil {
		return nil
	}
	return kind.nodes[r.key()]
}

func (g *referenceGraph) ensure(r Reference) *node {
	kind := g.kinds[r.Resource]
	if kind == nil {
		if g.kinds == nil {
			g.kinds = map[schema.GroupVersionResource]*kindNodes{}
		}
		kind = &kindNodes{own: r.Resource == g.own, nodes: map[types.NamespacedName]*node{}}
		g.kinds[r.Resource] = kind
	}
	n := kind.nodes[r.key()]
	if n == nil {
		n = &node{kind: kind, key: r.key()}
		kind.nodes[n.key] = n
	}
	return n
}

// attach attaches edges, and those of each node that comes into use by it.
func attach(edges []edge) {
	for todo := [][]edge{edges}; len(todo) > 0; {
		edges, todo = todo[len(todo)-1], todo[:len(todo)-1]
		for i := range edges {
			e := &edges[i]
			if !e.to.inUse() {
				todo = append(todo, e.to.edges)
			}
			e.at = len(e.to.users)
			e.to.users = append(e.to.users, e)
		}
	}
}

// detach is the opposite of attach.
func detach(edges []edge) {
	for todo := [][]edge{edges}; len(todo) > 0; {
		edges, todo = todo[len(todo)-1], todo[:len(todo)-1]
		for i := range edges {
			e := &edges[i]
			users := e.to.users
			last := len(users) - 1
			users[e.at] = users[last]
			users[e.at].at = e.at
			users[last] = nil
			if e.to.users = users[:last]; last == 0 {
				e.to.users = nil
			}
			if !e.to.inUse() {
				todo = append(todo, e.to.edges)
			}
		}
	}
}

// dropUnused forgets a node without edges. It may be called again.
func (n *node) dropUnused() {
	if n.named == 0 && len(n.edges) == 0 {
		delete(n.kind.nodes, n.key)
	}
}
