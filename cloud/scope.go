package cloud

import (
	"fmt"
	"maps"
	"strings"
)

// A Scope identifies the machines of one pool object in one cluster. Two clusters with
// a pool of the same name in one account have different scopes, and so has a pool that
// was deleted and created again.
type Scope struct {
	// Domain prefixes the tags, such as "stratos.sh". Its part before the first dot is the
	// value of the tag "managed-by". Required.
	Domain string

	// Cluster is the name or the UID of the cluster, unique in the account.
	// Required.
	Cluster string

	// Pool is the pool's name, for people.
	Pool string

	// PoolUID is unique for ever. Required.
	PoolUID string
}

// The tags of a machine, below Scope.Domain.
const (
	tagPool      = "pool"
	tagPoolUID   = "pool-uid"
	tagCluster   = "cluster"
	tagState     = "state"
	tagOperation = "operation"
	tagNode      = "node"
)

// Validate returns an error that names the first field that is missing.
func (s Scope) Validate() error {
	for _, f := range []struct{ name, value string }{{"Domain", s.Domain}, {"Cluster", s.Cluster}, {"PoolUID", s.PoolUID}} {
		if f.value == "" {
			return fmt.Errorf("cloud: Scope.%s: is required", f.name)
		}
	}
	return nil
}

// Key returns the name of a tag of the domain, such as "stratos.sh/state".
func (s Scope) Key(name string) string { return s.Domain + "/" + name }

// ClusterTags returns the tags that all machines of the cluster have, whatever
// their pool.
func (s Scope) ClusterTags() map[string]string {
	return map[string]string{"managed-by": s.manager(), s.Key(tagCluster): s.Cluster}
}

func (s Scope) manager() string {
	manager, _, _ := strings.Cut(s.Domain, ".")
	return manager
}

// Tags returns the tags that all machines of the pool have, and no other machine.
func (s Scope) Tags() map[string]string {
	tags := s.ClusterTags()
	tags[s.Key(tagPoolUID)] = s.PoolUID
	return tags
}

// LaunchTags returns the tags of a machine that is launched for the operation: extra,
// overridden by the tags of the pool.
func (s Scope) LaunchTags(operation string, extra map[string]string) map[string]string {
	tags := maps.Clone(extra)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, s.Tags())
	tags[s.Key(tagPool)] = s.Pool
	tags[s.Key(tagOperation)] = operation
	tags[s.Key(tagState)] = string(StateWarmup)
	tags["Name"] = tags["managed-by"] + "-" + s.Pool
	return tags
}

// StateTags returns the tags that record a machine's state, and its Node if that
// has a name.
func (s Scope) StateTags(state State, node string) map[string]string {
	tags := map[string]string{s.Key(tagState): string(state)}
	if node != "" {
		tags[s.Key(tagNode)] = node
	}
	return tags
}

// Owns reports whether the machine carries the tags of the pool.
func (s Scope) Owns(i Instance) bool {
	if s.Domain == "" || s.Cluster == "" || s.PoolUID == "" {
		return false
	}
	return i.Tags["managed-by"] == s.manager() && i.Tags[s.Key(tagCluster)] == s.Cluster && i.Tags[s.Key(tagPoolUID)] == s.PoolUID
}

func (s Scope) state(i Instance) State      { return State(i.Tags[s.Key(tagState)]) }
func (s Scope) operation(i Instance) string { return i.Tags[s.Key(tagOperation)] }
func (s Scope) node(i Instance) string      { return i.Tags[s.Key(tagNode)] }
