package kube

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// referenceGraph holds the references between objects. It finds the objects of the
// Controller's own kind that reach a changed object, over any number of steps.
//
// An edge is attached, so that it is found from its end, while its start is in use:
// an own object, or the end of another attached edge. Objects that no own object
// reaches are therefore never visited, however many there are. A cycle that goes
// out of use stays attached until the references of one of its objects change.
// Until then, a change behind it visits the cycle and wakes no object.
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
	edges []edge  // its references
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
// It may be called for several changes with one wakeSet, each before the edges of
// the changed object are set. A path from an own object to a changed object begins
// with edges that no change touches, up to the first changed object on it. The own
// object is found from there, although visited nodes are not visited again.
func (g *referenceGraph) addUsers(found *wakeSet, reference Reference) {
	start := g.find(reference)
	if start == nil || !found.visit(start) {
		return
	}
	if found.keys == nil && len(start.users) > 0 {
		found.keys = make(map[types.NamespacedName]bool, len(start.users))
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

// set replaces the references of an object.
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
	// The new edges first, so that nodes that stay in use are not detached in
	// between.
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

// attach attaches edges, and the edges of each node that comes into use.
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

// detach detaches edges, and the edges of each node that goes out of use.
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

// dropUnused removes a node without edges. It may be called again.
func (n *node) dropUnused() {
	if n.named == 0 && len(n.edges) == 0 {
		delete(n.kind.nodes, n.key)
	}
}
