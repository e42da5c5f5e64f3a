package simtest

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"time"
)

func (s *Server) create(c call) *answer {
	o, err := decode(c.body)
	if err != nil {
		return badRequest(c, err.Error())
	}
	if o.Name() == "" {
		prefix := o.text("metadata", "generateName")
		if prefix == "" {
			return invalid(c, "metadata.name or metadata.generateName is required")
		}
		o.Set(fmt.Sprintf("%s%05x", prefix, (s.created+1)*7919%0xfffff), "metadata", "name")
	}
	c.Name = o.Name()
	if s.objects[c.key()] != nil {
		return errorStatus(http.StatusConflict, "AlreadyExists", fmt.Sprintf("%s already exists", c.key()), c)
	}
	if o.ResourceVersion() != "" {
		return badRequest(c, "resourceVersion should not be set on objects to be created")
	}
	return s.insert(c, o, nil)
}

// insert stores a new object. applied is the managedFields of an apply, nil for
// another kind of write.
func (s *Server) insert(c call, o Object, applied []any) *answer {
	if why := c.misplaced(o); why != "" {
		return badRequest(c, why)
	}
	s.created++
	o["apiVersion"], o["kind"] = c.kind.apiVersion(), c.kind.Kind
	if !c.kind.Cluster {
		o.Set(c.Namespace, "metadata", "namespace")
	}
	o.drop("metadata", "deletionTimestamp")
	o.Set(fmt.Sprintf("uid-%06d", s.created), "metadata", "uid")
	o.Set(time.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
	if c.kind.Group != "" {
		o.Set(float64(1), "metadata", "generation")
	}
	if c.kind.Status {
		o.drop("status")
	}
	o, err := s.admit(o)
	if err == nil {
		o, err = s.own(c, nil, o, applied)
	}
	if err != nil {
		return invalid(c, err.Error())
	}
	if c.DryRun {
		return success(c, http.StatusCreated, o)
	}
	return success(c, http.StatusCreated, s.commit(c, c.key(), o))
}

// admit returns an object as Admit leaves it.
func (s *Server) admit(o Object) (Object, error) {
	if s.Admit == nil {
		return o, nil
	}
	if err := s.Admit(o); err != nil {
		return nil, err
	}
	return o.copy()
}

// own returns an object with the managedFields that a write leaves.
func (s *Server) own(c call, live, next Object, applied []any) (Object, error) {
	switch {
	case s.Fields == nil:
		return next, nil
	case applied != nil:
		next.Set(applied, "metadata", "managedFields")
		return next, nil
	}
	return s.Fields.Update(clone(live), next, c.write())
}

// misplaced returns why an object does not match the request's path.
func (c call) misplaced(o Object) string {
	switch {
	case o.Name() != c.Name:
		return fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.Name(), c.Name)
	case c.kind.Cluster && o.Namespace() != "":
		return "the kind has no namespaces"
	case !c.kind.Cluster && c.Namespace == "":
		return "the namespace is required"
	case !c.kind.Cluster && o.Namespace() != "" && o.Namespace() != c.Namespace:
		return "the namespace of the object does not match the namespace on the URL"
	}
	return ""
}

func (s *Server) update(c call) *answer {
	next, err := decode(c.body)
	if err != nil {
		return badRequest(c, err.Error())
	}
	live := s.objects[c.key()]
	if live == nil {
		return notFound(c)
	}
	if next.ResourceVersion() == "" && c.kind.custom() {
		return invalid(c, "metadata.resourceVersion: must be specified for an update")
	}
	return s.replace(c, live, next, nil)
}

// replace makes an object what a client wants it to be. applied is as in insert.
func (s *Server) replace(c call, live, next Object, applied []any) *answer {
	if next.ResourceVersion() != "" && next.ResourceVersion() != live.ResourceVersion() {
		return conflict(c, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if next.UID() != "" && next.UID() != live.UID() {
		return conflict(c, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", next.UID(), live.UID()))
	}
	if why := c.misplaced(next); why != "" {
		return badRequest(c, why)
	}
	switch {
	case c.Subresource == "status":
		changed := clone(live)
		changed.keep(next, "status")
		next = changed
	case c.kind.Status:
		next.keep(live, "status")
	}
	next["apiVersion"], next["kind"] = c.kind.apiVersion(), c.kind.Kind
	for _, field := range []string{"namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"} {
		next.keep(live, "metadata", field)
	}
	next, err := s.admit(next)
	if err == nil {
		next, err = s.own(c, live, next, applied)
	}
	if err != nil {
		return invalid(c, err.Error())
	}
	if live.Deleting() && adds(live.list("metadata", "finalizers"), next.list("metadata", "finalizers")) {
		return invalid(c, "metadata.finalizers: no new finalizers can be added if the object is being deleted")
	}
	if c.kind.Group != "" && respecified(live, next) {
		next.Set(live.number("metadata", "generation")+1, "metadata", "generation")
	}
	switch {
	case c.DryRun:
		return success(c, http.StatusOK, next)
	case live.Deleting() && len(next.list("metadata", "finalizers")) == 0:
		s.commit(c, c.key(), nil)
		return success(c, http.StatusOK, next)
	case equal(live, next):
		return success(c, http.StatusOK, live)
	}
	return success(c, http.StatusOK, s.commit(c, c.key(), next))
}

// respecified reports whether anything but the metadata and the status differs.
func respecified(a, b Object) bool {
	a, b = clone(a), clone(b)
	for _, o := range []Object{a, b} {
		delete(o, "metadata")
		delete(o, "status")
	}
	return !equal(a, b)
}

// adds reports whether next has an element that live lacks.
func adds(live, next []any) bool {
	has := map[any]bool{}
	for _, each := range live {
		has[each] = true
	}
	for _, each := range next {
		if !has[each] {
			return true
		}
	}
	return false
}

func (s *Server) patch(c call) *answer {
	form, _, err := mime.ParseMediaType(c.options.Header.Get("Content-Type"))
	if err != nil {
		return badRequest(c, err.Error())
	}
	patch, err := decode(c.body)
	if err != nil {
		return badRequest(c, err.Error())
	}
	live := s.objects[c.key()]
	switch {
	case form == "application/apply-patch+yaml" && s.Fields != nil:
		return s.apply(c, live, patch)
	case form != "application/merge-patch+json":
		return errorStatus(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the server serves merge patches, not "+form, c)
	case live == nil:
		return notFound(c)
	}
	next := Object(merge(clone(live), patch))
	if next.UID() != live.UID() {
		return invalid(c, "metadata.uid: field is immutable")
	}
	return s.replace(c, live, next, nil)
}

func (s *Server) apply(c call, live, config Object) *answer {
	if live != nil && config.UID() != "" && config.UID() != live.UID() || live == nil && config.UID() != "" {
		return conflict(c, "Precondition failed: UID in precondition: "+config.UID())
	}
	if live == nil && c.Subresource != "" {
		return notFound(c)
	}
	result, err := s.Fields.Apply(clone(live), clone(config), c.write())
	if err != nil {
		return conflict(c, err.Error())
	}
	applied := result.list("metadata", "managedFields")
	if live == nil {
		return s.insert(c, result, applied)
	}
	result.keep(config, "metadata", "resourceVersion") // the precondition
	return s.replace(c, live, result, applied)
}

func (s *Server) delete(c call) *answer {
	live := s.objects[c.key()]
	if live == nil {
		return notFound(c)
	}
	var options struct {
		DryRun        []string
		Preconditions struct{ UID, ResourceVersion *string }
	}
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return badRequest(c, err.Error())
		}
	}
	if uid := options.Preconditions.UID; uid != nil && *uid != live.UID() {
		return conflict(c, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *uid, live.UID()))
	}
	if version := options.Preconditions.ResourceVersion; version != nil && *version != live.ResourceVersion() {
		return conflict(
			c,
			fmt.Sprintf(
				"Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s",
				*version,
				live.ResourceVersion(),
			),
		)
	}
	switch {
	case len(live.list("metadata", "finalizers")) == 0:
		if !c.DryRun && len(options.DryRun) == 0 {
			s.commit(c, c.key(), nil)
		}
		return &answer{http.StatusOK, Object{
			"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success",
			"details": map[string]any{"name": c.Name, "group": c.Group, "kind": c.Resource, "uid": live.UID()},
		}}
	case live.Deleting(), c.DryRun, len(options.DryRun) > 0:
		return success(c, http.StatusOK, live)
	}
	next := clone(live)
	next.Set(time.Now().UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
	next.Set(float64(0), "metadata", "deletionGracePeriodSeconds")
	if c.kind.Group != "" {
		next.Set(live.number("metadata", "generation")+1, "metadata", "generation")
	}
	return success(c, http.StatusOK, s.commit(c, c.key(), next))
}

func (s *Server) deleteCollection(c call) *answer {
	selected, err := c.selector()
	if err != nil {
		return badRequest(c, err.Error())
	}
	list := s.list(c)
	for _, k := range s.keys(s.objects, selected) {
		each := c
		each.Name = k.name
		each.Namespace = k.namespace
		if a := s.delete(each); a.failed() {
			return a
		}
	}
	return list
}
