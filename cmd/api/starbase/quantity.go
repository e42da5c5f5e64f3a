package starbase

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ordered requires that no request is above its limit: the API server refuses such a pod.
func (v *violations) ordered(r Resources) {
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		of, limit := r.Requests[name], r.Limits[name]
		if !quantityPattern.MatchString(of) || !quantityPattern.MatchString(limit) {
			continue // that is wrong itself, or there is no limit
		}
		request, err := resource.ParseQuantity(of)
		most, err2 := resource.ParseQuantity(limit)
		if err == nil && err2 == nil {
			v.require("resources.requests."+name, of, request.Cmp(most) <= 0, "at most resources.limits."+name+", "+limit)
		}
	}
}
