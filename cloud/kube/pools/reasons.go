package pools

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// maxReasons is how many reasons of one pod are kept, to report none of them again.
const maxReasons = 16

// reasons are why the pod of each UID fits nowhere, as they were reported last.
type reasons struct{ of map[string][]string }

// report reports why a pod fits nowhere, each reason once while it waits: the reasons
// alternate when pools come and go.
func (r *reasons) report(pods []*demand.Pod, result demand.Result, report func(p *demand.Pod, why string)) {
	waiting := make(map[string]bool, len(pods))
	for _, p := range pods {
		waiting[p.UID] = true
	}
	maps.DeleteFunc(r.of, func(uid string, _ []string) bool { return !waiting[uid] })
	once := func(p *demand.Pod, why string) {
		known := r.of[p.UID]
		if slices.Contains(known, why) {
			return
		}
		set(&r.of, p.UID, append(known[max(0, len(known)-maxReasons+1):], why))
		report(p, why)
	}
	for _, u := range result.Unplaced {
		all := make([]string, 0, len(u.Reasons))
		for _, reason := range u.Reasons {
			all = append(all, "pool "+reason.Pool+": "+reason.Message)
		}
		if len(all) > 0 {
			once(u.Pod, strings.Join(all, "; "))
		}
	}
	for _, p := range result.Unmodelled {
		once(p, "no machine is started for it: "+p.Unmodelled[0])
	}
}
