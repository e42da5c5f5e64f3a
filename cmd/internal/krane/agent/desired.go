package agent

import (
	"bytes"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// resource is what the three collections differ in.
type resource struct {
	collection stream.Collection
	component  render.Component
	// root is the object that stands for the others: it has the resource's
	// k8s_name, and its label has the resource's id.
	root  schema.GroupKind
	label string
	// rpc asks what is wanted of one.
	rpc string
}

// The labels that carry ids.
const (
	labelDeploymentID = "unkey.com/deployment.id"
	labelSentinelID   = "unkey.com/sentinel.id"
	labelPolicyID     = "unkey.com/policy.id"
)

// resources returns all three.
func resources() []resource {
	return []resource{
		{stream.Deployments, render.Deployment, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, labelDeploymentID, "GetDesiredDeploymentState"},
		{stream.Sentinels, render.Sentinel, schema.GroupKind{Group: "apps", Kind: "Deployment"}, labelSentinelID, "GetDesiredSentinelState"},
		{stream.Policies, render.Policy, schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}, labelPolicyID, "GetDesiredCiliumNetworkPolicyState"},
	}
}

// of returns the resource of a collection.
func of(collection string) resource {
	for _, r := range resources() {
		if string(r.collection) == collection {
			return r
		}
	}
	return resource{}
}

// isRoot tells whether the object stands for its resource.
func (r resource) isRoot(id apply.ID) bool { return id.GroupKind() == r.root }

func (r resource) key(id apply.ID) statesync.Key { return r.collection.Key(id.Namespace, id.Name) }

func (r resource) rootID(key statesync.Key) apply.ID {
	namespace, name := stream.Split(key)
	return apply.ID{Group: r.root.Group, Kind: r.root.Kind, Namespace: namespace, Name: name}
}

// message returns an empty apply message.
func (r resource) message() proto.Message {
	switch r.collection {
	case stream.Deployments:
		return &ctrlv1.ApplyDeployment{}
	case stream.Sentinels:
		return &ctrlv1.ApplySentinel{}
	default:
		return &ctrlv1.ApplyCiliumNetworkPolicy{}
	}
}

// entry is one key and what is wanted of it. Its mutex is held while that is made
// so: one object, one worker.
type entry struct {
	mu  sync.Mutex
	key statesync.Key
	resource
	wish wish
	// uid is that of the root, once it is known.
	uid types.UID
	// variables are what was decrypted of ciphertext, nil before.
	variables  map[string]string
	ciphertext []byte
	keyring    string
	// doubts counts the point queries in a row that said otherwise.
	doubts int
}

// wish is what is wanted of a key.
type wish struct {
	known   bool
	version uint64
	// apply is nil when the key is to be absent, and gone is true once it is.
	apply proto.Message
	gone  bool
}

// plain returns the variables if they are those of the deployment as it is
// wanted.
func (e *entry) plain(d *ctrlv1.ApplyDeployment) (map[string]string, bool) {
	if e.variables == nil || e.keyring != d.GetEnvironmentId() || !bytes.Equal(e.ciphertext, d.GetEncryptedEnvironmentVariables()) {
		return nil, false
	}
	return e.variables, true
}

// book has the entries, and whose the objects are.
type book struct {
	mu      sync.Mutex
	entries map[statesync.Key]*entry
	// objects are by component, because two components have objects of a kind.
	objects map[render.Component]map[apply.ID]statesync.Key
	// peek is each entry's wish for who does not hold its mutex.
	peek map[statesync.Key]wish
	// ids are those that live objects carry.
	ids map[statesync.Key]string
}

func newBook() *book {
	b := &book{entries: map[statesync.Key]*entry{}, objects: map[render.Component]map[apply.ID]statesync.Key{}, peek: map[statesync.Key]wish{}, ids: map[statesync.Key]string{}}
	for _, r := range resources() {
		b.objects[r.component] = map[apply.ID]statesync.Key{}
	}
	return b
}

// entry returns that of the key, a new one if need be.
func (b *book) entry(key statesync.Key) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[key]
	if e == nil {
		e = &entry{key: key, resource: of(key.Collection)}
		b.entries[key] = e
	}
	return e
}

// wants makes w the wish of e, whose mutex is held.
func (b *book) wants(e *entry, w wish) {
	e.wish = w
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peek[e.key] = w
}

// wish returns what is wanted of a key as far as it is known.
func (b *book) wish(key statesync.Key) wish {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peek[key]
}

// wanted returns the keys that are wanted to be.
func (b *book) wanted() []statesync.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []statesync.Key
	for key, w := range b.peek {
		if w.known && w.apply != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// owns notes whose an object is.
func (b *book) owns(e *entry, ids ...apply.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.objects[e.component][id] = e.key
	}
}

// whose returns the key of an object.
func (b *book) whose(component render.Component, id apply.ID) (statesync.Key, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, ok := b.objects[component][id]
	return key, ok
}

// called notes the id that the root of a key carries.
func (b *book) called(key statesync.Key, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids[key] = id
}

// id returns what called has noted.
func (b *book) id(key statesync.Key) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ids[key]
}

// forget drops what is not in the list of a collection, and nobody works on.
func (b *book) forget(collection string, listed map[statesync.Key]statesync.Item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		if _, ok := listed[key]; ok || key.Collection != collection || !e.mu.TryLock() {
			continue
		}
		delete(b.entries, key)
		delete(b.peek, key)
		delete(b.ids, key)
		for id, at := range b.objects[e.component] {
			if at == key {
				delete(b.objects[e.component], id)
			}
		}
		e.mu.Unlock()
	}
}
