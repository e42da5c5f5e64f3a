//trueup:pure

package demand

// Resources is an amount of each resource that the scheduler counts. Nodes and pods use
// the same units.
type Resources struct {
	// CPU is in thousandths of a core.
	CPU int64
	// Memory and EphemeralStorage are in bytes.
	Memory, EphemeralStorage int64
	// Pods is the number of pods that a node may run; zero means that it runs
	// none. It is ignored in the requests of a pod, which counts as one.
	Pods int64
	// Extended holds all other resources by their full name, such as
	// "nvidia.com/gpu" or "hugepages-2Mi", in whole units.
	Extended map[string]int64
}

// Places of a resource in a vector. Extended resources follow.
const (
	dimCPU = iota
	dimMemory
	dimStorage
	dimPods
	dimExtended
)

// empty reports whether a pod with these requests requests nothing.
func (r *Resources) empty() bool {
	if r.CPU != 0 || r.Memory != 0 || r.EphemeralStorage != 0 {
		return false
	}
	for _, n := range r.Extended {
		if n != 0 {
			return false
		}
	}
	return true
}

// vector writes r into v, whose places after dimExtended belong to names.
func (r *Resources) vector(names []string, v []int64) {
	v[dimCPU], v[dimMemory], v[dimStorage], v[dimPods] = r.CPU, r.Memory, r.EphemeralStorage, r.Pods
	for i, name := range names {
		v[dimExtended+i] = r.Extended[name]
	}
}
