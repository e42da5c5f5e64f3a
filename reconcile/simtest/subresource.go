package simtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// scale serves the subresource scale.
func (s *Server) scale(c call) *answer {
	live := s.objects[c.key()]
	if live == nil {
		return notFound(c)
	}
	now := c.kind.scaleOf(live)
	var next Object
	switch c.Verb {
	case "get":
		if refusal := c.unscalable(live); refusal != nil {
			return refusal
		}
		return success(c, http.StatusOK, now)
	case "update":
		var err error
		if next, err = decode(c.body); err != nil || next == nil {
			return badRequest(c, fmt.Sprintf("the object provided is unrecognized (must be of type Scale): %v", err))
		}
		if next.Name() != c.Name {
			return otherName(c, next)
		}
	default:
		form, refusal := s.patchForm(c)
		if refusal == nil && form == applyPatch {
			refusal = unserved(
				http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the server applies no scale", "patch the scale with "+mergePatch, c,
			)
		}
		if refusal != nil {
			return refusal
		}
		if next, refusal = s.patched(c, form, now); refusal != nil {
			return refusal
		}
		if next.ResourceVersion() == now.ResourceVersion() {
			next.drop("metadata", "resourceVersion")
		}
	}
	if n := next.number("spec", "replicas"); n < 0 {
		a := invalid(c, fmt.Sprintf("spec.replicas: Invalid value: %v: must be greater than or equal to 0", n))
		return a.about(Object{"name": c.Name, "group": "autoscaling", "kind": "Scale"})
	}
	changed := clone(live)
	changed.Set(next.number("spec", "replicas"), strings.Split(c.kind.scale().Replicas, ".")...)
	if next.ResourceVersion() != "" {
		changed.keep(next, "metadata", "resourceVersion")
	}
	plain := c
	plain.plain = true
	a := s.replace(plain, live, changed, nil)
	if a.failed() {
		return a
	}
	return success(c, http.StatusOK, c.kind.scaleOf(a.body))
}

// selectorText is spec.selector as a label selector.
func selectorText(o Object) string {
	labels, ok := o.Field("spec", "selector", "matchLabels").(map[string]any)
	if !ok && o.Field("spec", "selector", "matchExpressions") == nil {
		labels, _ = o.Field("spec", "selector").(map[string]any)
	}
	var terms []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, fmt.Sprintf("%s=%v", name, labels[name]))
	}
	for _, each := range o.list("spec", "selector", "matchExpressions") {
		terms = append(terms, expressionText(each))
	}
	slices.Sort(terms)
	return strings.Join(terms, ",")
}

func expressionText(value any) string {
	term, _ := value.(map[string]any)
	e := Object(term)
	name, values := e.text("key"), []string{}
	for _, each := range e.list("values") {
		values = append(values, fmt.Sprint(each))
	}
	slices.Sort(values)
	switch e.text("operator") {
	case "In":
		return name + " in (" + strings.Join(values, ",") + ")"
	case "NotIn":
		return name + " notin (" + strings.Join(values, ",") + ")"
	case "DoesNotExist":
		return "!" + name
	}
	return name
}

// bind serves pods/binding.
func (s *Server) bind(c call) *answer {
	binding, err := decode(c.body)
	if err != nil || binding == nil {
		return badRequest(c, fmt.Sprintf("the object provided is unrecognized (must be of type Binding): %v", err))
	}
	live, node := s.objects[c.key()], binding.text("target", "name")
	busy := func(why string) *answer {
		a := errorStatus(http.StatusConflict, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on pods/binding %q: %s", c.Name, why), c)
		a.body.Set("pods/binding", "details", "kind")
		return a
	}
	switch {
	case node == "":
		return invalid(c, "target.name: Required value")
	case live == nil:
		return notFound(c)
	case live.Deleting():
		return busy(fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", c.Name))
	case live.text("spec", "nodeName") != "":
		return busy(fmt.Sprintf("pod %s is already assigned to node %q", c.Name, live.text("spec", "nodeName")))
	}
	next := clone(live)
	next.Set(node, "spec", "nodeName")
	next.meet(map[string]any{"type": "PodScheduled", "status": "True"})
	if next, err = s.own(c, live, next, nil); err != nil {
		return refused(c, err, http.StatusUnprocessableEntity)
	}
	if !c.dry() {
		s.commit(c, c.key(), next)
	}
	return done(http.StatusCreated, nil)
}

// meet sets a condition of a pod.
func (o Object) meet(condition map[string]any) {
	condition["lastProbeTime"], condition["lastTransitionTime"] = nil, time.Now().UTC().Format(time.RFC3339)
	all := o.list("status", "conditions")
	for i, each := range all {
		if was, ok := each.(map[string]any); ok && was["type"] == condition["type"] {
			if was["status"] == condition["status"] {
				condition["lastTransitionTime"] = was["lastTransitionTime"]
			}
			all[i] = condition
			return
		}
	}
	o.Set(append(all, condition), "status", "conditions")
}

// evict serves pods/eviction.
func (s *Server) evict(c call) *answer {
	live := s.objects[c.key()]
	if live == nil {
		return notFound(c)
	}
	eviction, err := decode(c.body)
	if err != nil || eviction == nil {
		return badRequest(c, fmt.Sprintf("the object provided is unrecognized (must be of type Eviction): %v", err))
	}
	if eviction.Name() != c.Name {
		return badRequest(c, "name in URL does not match name in Eviction object")
	}
	options, _ := eviction["deleteOptions"].(map[string]any)
	plain := c
	plain.Subresource, plain.plain = "", true
	if plain.body, err = encode(options); err != nil {
		return badRequest(c, err.Error())
	}
	d, refusal := plain.deletion()
	if refusal == nil {
		refusal = s.unmet(plain, d, live)
	}
	if refusal != nil {
		return refusal
	}
	dry := len(d.DryRun) > 0 || c.dry()
	phase := live.text("status", "phase")
	if !live.Deleting() && phase != "Pending" && phase != "Succeeded" && phase != "Failed" {
		if a := s.disrupt(c, live, dry); a != nil {
			return a
		}
	}
	if !dry {
		next := clone(live)
		next.meet(map[string]any{
			"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
		})
		if !equal(live, next) {
			s.commit(c, c.key(), next)
		}
		d.Preconditions.ResourceVersion = nil
	}
	if a := s.remove(plain, d); a.failed() {
		return a
	}
	return done(http.StatusCreated, nil)
}

// disrupt takes one disruption from the PodDisruptionBudget of a pod, or answers that
// there is none left.
func (s *Server) disrupt(c call, pod Object, dry bool) *answer {
	of := selector{group: "policy", resource: "poddisruptionbudgets", namespace: c.Namespace}
	for _, k := range s.keys(s.objects, of) {
		budget := s.objects[k]
		terms, err := labelTerms(selectorText(budget))
		one := selector{group: c.Group, resource: c.Resource, labels: terms}
		if err != nil || budget.Field("spec", "selector") == nil || !one.matches(c.key(), pod) {
			continue
		}
		left := budget.number("status", "disruptionsAllowed")
		switch {
		case budget.number("status", "observedGeneration") < budget.number("metadata", "generation"):
			return forbidden(c, fmt.Sprintf("The disruption budget %s is still being processed by the server.", k.name), 10)
		case left < 1:
			return forbidden(c, fmt.Sprintf(
				"The disruption budget %s needs %v healthy pods and has %v currently",
				k.name, budget.number("status", "desiredHealthy"), budget.number("status", "currentHealthy"),
			), 0)
		}
		if !dry {
			next := clone(budget)
			next.Set(left-1, "status", "disruptionsAllowed")
			next.Set(s.now().Format(time.RFC3339), "status", "disruptedPods", c.Name)
			s.commit(c, k, next)
		}
	}
	return nil
}

// forbidden is the answer to an eviction that a disruption budget does not allow. With seconds, the
// client is to try again after them.
func forbidden(c call, why string, seconds int) *answer {
	a := errorStatus(http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", c)
	details := Object{"causes": []any{map[string]any{"reason": "DisruptionBudget", "message": why}}}
	if seconds > 0 {
		details["retryAfterSeconds"] = float64(seconds)
	}
	return a.about(details)
}
