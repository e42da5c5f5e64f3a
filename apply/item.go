package apply

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// membership is how a set treats an ID that it states.
type membership int

const (
	absent     membership = iota
	applicable            // it is applied
	leftOut               // LeaveOut: others write it
	invalid               // it cannot be applied
)

type item struct {
	// The fields that every pass reads come first, close together.
	at     view.Name
	hash   diff.Sum
	group  int     // index of the kind in Set.kinds
	number int     // index in Set.items, plus one; 0: it is not one of these
	handed *handed // nil: no field is handed over
	policy ObjectPolicy
	after  []ID // its dependencies
	rank   rank
	id     ID
	kind   schema.GroupVersionKind
	body   wire.Body // with the owner's labels and the hash annotation
	create wire.Body // body with the ignored fields; nil: there are none

	placed bool        // rank is final
	static bool        // its metadata shows its readiness
	left   diff.Ignore // the fields that are left to others
}

// handed are fields of an object that the set states, and that a controller had before and
// keeps for as long as the object exists that configures it.
type handed struct {
	by     ID // the object that configures the controller, which the set does not state
	at     view.Name
	group  int // of its kind in Set.kinds
	fields diff.Ignore

	once sync.Once
	item *item // the object without the fields, made when it is needed
}

// rank is an object's place in the order: objects of a lower rank come first, objects
// of one rank are applied in parallel.
type rank struct {
	stage int // of its kind, or the latest stage of its dependencies
	depth int // within the stage: one more than its dependencies there
}

func (r rank) compare(other rank) int {
	if r.stage != other.stage {
		return r.stage - other.stage
	}
	return r.depth - other.depth
}

// The labels and annotations of KEP-3659, by which kubectl and other tools see
// which objects belong together.
const (
	applySetPartOf     = "applyset.kubernetes.io/part-of"
	applySetID         = "applyset.kubernetes.io/id"
	applySetTooling    = "applyset.kubernetes.io/tooling"
	applySetKinds      = "applyset.kubernetes.io/contains-group-kinds"
	applySetNamespaces = "applyset.kubernetes.io/additional-namespaces"
	// applySetPartial, below the owner's domain, says that the parent was made without
	// knowing all kinds of before.
	applySetPartial = "/group-kinds-partial"
)

// applySetParent is the object that stands for an ApplySet, without what depends on
// its members.
type applySetParent struct {
	item   item
	object *unstructured.Unstructured
	stated bool // the set states the parent; otherwise one is made, the same for all sets
}

// members are the kinds and namespaces that the parent of an ApplySet lists.
type members struct{ kinds, namespaces map[string]bool }

// union returns the kinds and namespaces that are in either.
func (m members) union(other members) members {
	both := members{maps.Clone(m.kinds), maps.Clone(m.namespaces)}
	if both.kinds == nil {
		both.kinds = map[string]bool{}
	}
	if both.namespaces == nil {
		both.namespaces = map[string]bool{}
	}
	maps.Copy(both.kinds, other.kinds)
	maps.Copy(both.namespaces, other.namespaces)
	return both
}

func (m members) equal(other members) bool {
	return maps.Equal(m.kinds, other.kinds) && maps.Equal(m.namespaces, other.namespaces)
}

// membersOf reads the annotations of a parent.
func membersOf(annotations map[string]string) members {
	read := func(key string) map[string]bool {
		found := map[string]bool{}
		for part := range strings.SplitSeq(annotations[key], ",") {
			if part = strings.TrimSpace(part); part != "" {
				found[part] = true
			}
		}
		return found
	}
	return members{read(applySetKinds), read(applySetNamespaces)}
}

// applySet is the memory that a Live has of its ApplySet.
type applySet struct {
	stated     members         // listed by the parent on the server
	namespaces map[string]bool // of all sets so far, if the owner has parts
	source     *applySetParent // the parent that item was built from
	next       members         // the members that item lists
	partial    bool            // whether item says that there may be more
	item       item

	absent   bool      // there was no parent, and one that appears is new
	traced   bool      // the kinds of before are known
	untraced error     // why they are not
	until    time.Time // no look for them before
}
