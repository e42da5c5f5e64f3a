package simtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Finalizers of the propagation policies.
const (
	orphanFinalizer     = "orphan"
	foregroundFinalizer = "foregroundDeletion"
)

// deletion is the metav1.DeleteOptions of a call.
type deletion struct {
	Kind               string
	DryRun             []string
	GracePeriodSeconds *int64
	PropagationPolicy  *string
	OrphanDependents   *bool
	Preconditions      struct{ UID, ResourceVersion *string }
}

// deletion reads the options of a deletion: from the body, or else from the query.
func (c call) deletion() (deletion, *answer) {
	var d deletion
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &d); err != nil {
			return d, badRequest(c, err.Error())
		}
		if d.Kind != "" && d.Kind != "DeleteOptions" {
			return d, badRequest(c, fmt.Sprintf("no kind %q is registered for version \"meta.k8s.io/v1\"", d.Kind))
		}
	} else if c.options != nil {
		if err := d.read(c.options.URL.Query()); err != nil {
			return d, badRequest(c, err.Error())
		}
	}
	policies := []string{"Foreground", "Background", "Orphan"}
	switch {
	case d.PropagationPolicy != nil && d.OrphanDependents != nil:
		return d, invalidOption(c, "DeleteOptions", "propagationPolicy: orphanDependents and deletionPropagation cannot be both set")
	case d.PropagationPolicy != nil && !slices.Contains(policies, *d.PropagationPolicy):
		return d, invalidOption(c, "DeleteOptions", fmt.Sprintf("propagationPolicy: Unsupported value: %q", *d.PropagationPolicy))
	case len(d.DryRun) > 0 && !slices.Equal(d.DryRun, []string{"All"}):
		return d, invalidOption(c, "DeleteOptions", fmt.Sprintf("dryRun: Unsupported value: %q: supported values: \"All\"", d.DryRun))
	}
	return d, nil
}

// read takes the options from a query.
func (d *deletion) read(query map[string][]string) error {
	d.DryRun = query["dryRun"]
	if text := query["gracePeriodSeconds"]; len(text) > 0 {
		n, err := strconv.ParseInt(text[0], 10, 64)
		if err != nil {
			return err
		}
		d.GracePeriodSeconds = &n
	}
	if text := query["propagationPolicy"]; len(text) > 0 {
		d.PropagationPolicy = &text[0]
	}
	if text := query["orphanDependents"]; len(text) > 0 {
		orphan := text[0] != "false" && text[0] != "0"
		d.OrphanDependents = &orphan
	}
	return nil
}

func (s *Server) delete(c call) *answer {
	d, refusal := c.deletion()
	if refusal != nil {
		return refusal
	}
	a := s.remove(c, d)
	if a.code == http.StatusOK && !a.gone && d.OrphanDependents != nil && !*d.OrphanDependents {
		a.code = http.StatusAccepted
	}
	return a
}

// remove deletes an object, or marks it as being deleted if something holds it.
func (s *Server) remove(c call, d deletion) *answer {
	live := s.objects[c.key()]
	if live == nil {
		return notFound(c)
	}
	if a := s.unmet(c, d, live); a != nil {
		return a
	}
	if a := c.immortal(); a != nil {
		return a
	}
	if _, a := s.admit(c, "delete", live, nil); a != nil {
		return a
	}
	next := c.kind.read(live)
	graceful, pending := c.kind.grace(next, d, s.now())
	if pending {
		return success(c, http.StatusOK, live)
	}
	finalizers := c.kind.finalizers(next, d)
	if !slices.Equal(finalizers, next.list("metadata", "finalizers")) {
		next.keep(Object{"metadata": map[string]any{"finalizers": finalizers}}, "metadata", "finalizers")
		if len(finalizers) == 0 {
			next.drop("metadata", "finalizers")
		}
	}
	held := len(finalizers) > 0
	switch {
	case c.kind.resource() == "namespaces" && (held || len(next.list("spec", "finalizers")) > 0):
		held = true
		next.Set("Terminating", "status", "phase")
		if !next.Deleting() {
			next.Set(s.now().Format(time.RFC3339), "metadata", "deletionTimestamp")
		}
	case held && !graceful:
		next.condemn(s.now())
	}
	if !held && next.number("metadata", "deletionGracePeriodSeconds") == 0 {
		return s.vanish(c, d, live, next, graceful)
	}
	switch {
	case len(d.DryRun) > 0 || c.dry():
		return success(c, http.StatusOK, next)
	case equal(live, next):
		return success(c, http.StatusOK, live)
	}
	return success(c, http.StatusOK, s.commit(c, c.key(), next))
}

// vanish deletes an object that nothing holds.
func (s *Server) vanish(c call, d deletion, live, next Object, graceful bool) *answer {
	if len(d.DryRun) == 0 && !c.dry() {
		if graceful { // a real server stores the end of the grace period first
			s.commit(c, c.key(), next)
		}
		next = s.commit(c, c.key(), nil)
	}
	if c.kind.traits().returned {
		a := success(c, http.StatusOK, next)
		a.gone = true
		return a
	}
	named := Object{"name": c.Name, "kind": c.Resource, "uid": live.UID()}
	if c.Group != "" {
		named["group"] = c.Group
	}
	a := done(http.StatusOK, named)
	a.gone = true
	return a
}

// unmet answers if a precondition of a deletion does not hold.
func (s *Server) unmet(c call, d deletion, live Object) *answer {
	var why string
	switch uid, version := d.Preconditions.UID, d.Preconditions.ResourceVersion; {
	case uid != nil && *uid != live.UID():
		why = fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and "+
			"then recreated", *uid, live.UID())
	case version != nil && *version != live.ResourceVersion():
		why = fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might "+
			"have been modified", *version, live.ResourceVersion())
	default:
		return nil
	}
	a := conflict(c, why)
	a.body.Set(c.kind.Kind, "details", "kind")
	return a
}

// grace sets when a pod is deleted, if it is deleted gracefully. pending is whether
// it is being deleted already, and no later than the options want.
func (k Kind) grace(o Object, d deletion, now time.Time) (graceful, pending bool) {
	if k.resource() != "pods" {
		return false, false
	}
	given := d.GracePeriodSeconds
	if given != nil && *given < 0 {
		given = new(int64(1))
	}
	if o.Deleting() {
		left := int64(o.number("metadata", "deletionGracePeriodSeconds"))
		switch {
		case left == 0:
			return false, false
		case given == nil || *given >= left:
			return false, true
		}
		period := *given
		end, err := time.Parse(time.RFC3339, o.text("metadata", "deletionTimestamp"))
		end = end.Add(time.Duration(period-left) * time.Second)
		if err != nil || end.Before(now) {
			end, period = now, min(period, 1)
		}
		o.expireAt(end, period)
		return true, false
	}
	period := int64(o.number("spec", "terminationGracePeriodSeconds"))
	if given != nil {
		period = *given
	} else if o.Field("spec", "terminationGracePeriodSeconds") == nil {
		period = 30 // the default of the schema
	}
	if phase := o.text("status", "phase"); o.text("spec", "nodeName") == "" || phase == "Failed" || phase == "Succeeded" {
		period = 0
	}
	o.expireAt(now.Add(time.Duration(period)*time.Second), period)
	o.regenerate()
	return true, false
}

func (o Object) expireAt(end time.Time, period int64) {
	o.Set(end.UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
	o.Set(float64(period), "metadata", "deletionGracePeriodSeconds")
}

func (o Object) regenerate() {
	if n := o.number("metadata", "generation"); n > 0 {
		o.Set(n+1, "metadata", "generation")
	}
}

// condemn marks an object that finalizers hold.
func (o Object) condemn(now time.Time) {
	if !o.Deleting() {
		o.regenerate()
	}
	if end, err := time.Parse(time.RFC3339, o.text("metadata", "deletionTimestamp")); err != nil || end.After(now) {
		o.Set(now.Format(time.RFC3339), "metadata", "deletionTimestamp")
	}
	o.Set(float64(0), "metadata", "deletionGracePeriodSeconds")
}

// finalizers are those that an object has once it is deleted with the options.
func (k Kind) finalizers(o Object, d deletion) []any {
	var all []any
	had := ""
	for _, each := range o.list("metadata", "finalizers") {
		if each == orphanFinalizer || each == foregroundFinalizer {
			if had == "" {
				had, _ = each.(string)
			}
			continue
		}
		all = append(all, each)
	}
	policy := had
	if policy == "" && k.traits().orphans {
		policy = orphanFinalizer
	}
	switch {
	case k.traits().single:
		policy = ""
	case d.OrphanDependents != nil && *d.OrphanDependents:
		policy = orphanFinalizer
	case d.OrphanDependents != nil:
		policy = ""
	case d.PropagationPolicy != nil:
		policy = map[string]string{"Orphan": orphanFinalizer, "Foreground": foregroundFinalizer}[*d.PropagationPolicy]
	}
	if policy != "" {
		all = append(all, policy)
	}
	if sameSet(all, o.list("metadata", "finalizers")) {
		return o.list("metadata", "finalizers")
	}
	return all
}

func sameSet(a, b []any) bool { return !adds(a, b) && !adds(b, a) }

func (s *Server) deleteCollection(c call) *answer {
	d, refusal := c.deletion()
	if refusal != nil {
		return refusal
	}
	selected, err := c.selector()
	if err != nil {
		return badRequest(c, err.Error())
	}
	list := s.list(c)
	if list.failed() {
		return list
	}
	for _, k := range s.keys(s.objects, selected) {
		each := c
		each.Name, each.Namespace = k.name, k.namespace
		if a := s.remove(each, d); a.failed() {
			return a
		}
	}
	return list
}
