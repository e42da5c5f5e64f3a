//trueup:pure

package buffers

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// refusal is why a buffer cannot be served. It becomes a condition.
type refusal struct {
	Reason  string // one CamelCase word
	Message string // names the field, its value and what would be right
}

func (e *refusal) Error() string { return e.Message }

func wrong(reason, format string, args ...any) error {
	return &refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// reference returns which template the buffer names: one of the two is not nil. It returns
// a *refusal if there is none, or if there are two.
func (b *CapacityBuffer) reference() (*TemplateRef, *ScalableRef, error) {
	template, scalable := b.Spec.PodTemplateRef, b.Spec.ScalableRef
	switch {
	case template == nil && scalable == nil:
		return nil, nil, wrong(
			"InvalidSpec",
			"spec.podTemplateRef: is not set, must name a PodTemplate of the namespace, unless spec.scalableRef names a workload",
		)
	case template != nil && scalable != nil:
		return nil, nil, wrong("InvalidSpec", "spec.scalableRef: must not be set beside spec.podTemplateRef")
	case scalable != nil && (scalable.APIGroup != "apps" || scalable.Kind != "Deployment" && scalable.Kind != "StatefulSet"):
		return nil, nil, wrong(
			"UnsupportedKind",
			"spec.scalableRef: is a %s of the group %q, must be a Deployment or StatefulSet of the group \"apps\"",
			scalable.Kind,
			scalable.APIGroup,
		)
	}
	return template, scalable, nil
}

// units returns the number of pods that must have room, and which limit makes that fewer than the
// spec asks for, empty if none does. The pod comes from the template, and current is the number of
// replicas of the workload. It returns a *refusal if the spec sets no number, or a limit is no number
// of something.
func (b *CapacityBuffer) units(pod *demand.Pod, current int32) (units int32, limited string, err error) {
	spec := b.Spec
	units = -1
	if spec.Replicas != nil {
		units = max(*spec.Replicas, 0)
	}
	if spec.Percentage != nil {
		if spec.ScalableRef == nil {
			return 0, "", wrong(
				"InvalidSpec", "spec.percentage: must not be set without spec.scalableRef: it is a share of the replicas of a workload",
			)
		}
		units = max(units, share(*spec.Percentage, current))
	}
	most, by, err := limitOf(spec.Limits, &pod.Requests)
	switch {
	case err != nil:
		return 0, "", err
	case len(spec.Limits) == 0 && units < 0:
		return 0, "", wrong("InvalidSpec", "spec.replicas: is not set, must be, unless spec.percentage or spec.limits is")
	case by == "" && units < 0:
		return 0, "", wrong(
			"InvalidSpec",
			"spec.limits: bounds %v, none of which the template requests; must bound one that it does, or spec.replicas must be set",
			slices.Sorted(maps.Keys(spec.Limits)),
		)
	case units < 0:
		return most, "", nil
	case by != "" && most < units:
		limit := spec.Limits[by]
		return most, fmt.Sprintf("spec.limits.%s: is %s, which allows %d of %d pods", by, limit.String(), most, units), nil
	}
	return units, "", nil
}

// share is a percentage of current, rounded up, and at least one, as the API documents it.
func share(percentage, current int32) int32 {
	if percentage <= 0 {
		return 0
	}
	return int32(min(max((int64(percentage)*int64(current)+99)/100, 1), math.MaxInt32)) //nolint:gosec // bounded
}

// limitOf is how many pods with these requests the limits allow, and which one allows the fewest;
// empty if they bound none of the requests.
func limitOf(limits corev1.ResourceList, r *demand.Resources) (units int32, by corev1.ResourceName, err error) {
	most := int64(math.MaxInt32)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit, request, scale := limits[name], r.Extended[string(name)], int64(1)
		switch name {
		case corev1.ResourceCPU:
			request, scale = r.CPU, 1000
		case corev1.ResourceMemory:
			request = r.Memory
		case corev1.ResourceEphemeralStorage:
			request = r.EphemeralStorage
		default:
		}
		if limit.Sign() < 0 {
			return 0, "", wrong("InvalidSpec", "spec.limits.%s: is %s, must not be negative", name, limit.String())
		}
		if request <= 0 {
			continue
		}
		if by == "" {
			by = name
		}
		if limit.CmpInt64(math.MaxInt64/scale) >= 0 {
			continue // more than can be counted, which is no limit
		}
		allowed := limit.Value()
		if scale == 1000 {
			allowed = limit.MilliValue()
		}
		if n := allowed / request; n < most {
			most, by = n, name
		}
	}
	return int32(most), by, nil //nolint:gosec // bounded
}
