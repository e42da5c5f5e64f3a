package simtest

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

func (s *Server) create(c call) *answer {
	o, refusal := c.object()
	if refusal != nil {
		return refusal
	}
	if o.Namespace() != "" && !c.kind.Cluster && o.Namespace() != c.Namespace {
		return badRequest(c, "the namespace of the provided object does not match the namespace sent on the request")
	}
	if o.Name() == "" {
		prefix := o.text("metadata", "generateName")
		if prefix != "" {
			o.Set(fmt.Sprintf("%s%05x", prefix[:min(len(prefix), 58)], (s.created+1)*7919%0xfffff), "metadata", "name")
		}
	}
	c.Name = o.Name()
	return s.insert(c, o, nil)
}

// object is the object in the body, or why it is none.
func (c call) object() (Object, *answer) {
	o, err := decode(c.body)
	if err != nil || o == nil {
		return nil, badRequest(c, fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v", c.kind.Kind, err))
	}
	version, kind := o.text("apiVersion"), o.text("kind")
	switch {
	case c.kind.custom() && kind == "":
		return nil, badRequest(c, fmt.Sprintf("the object provided is unrecognized (must be of type %s): Object 'Kind' is missing", c.kind.Kind))
	case c.kind.custom() && version != c.kind.apiVersion():
		return nil, otherVersion(c, version)
	case c.kind.custom() && kind != c.kind.Kind:
		c.Name = o.Name()
		return nil, otherKind(c, kind)
	case kind != "" && kind != c.kind.Kind, version != "" && version != c.kind.apiVersion():
		return nil, badRequest(c, fmt.Sprintf("%s in version %q cannot be handled as a %s", kind, version, c.kind.Kind))
	}
	if _, ok := o["metadata"].(map[string]any); !ok {
		o["metadata"] = map[string]any{}
	}
	if c.kind.Cluster {
		o.drop("metadata", "namespace")
	}
	return c.read(c.kind.toStored(o), c.unreadable)
}

func nameless(c call) *answer {
	return badRequest(c, fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", c.Name))
}

func otherName(c call, o Object) *answer {
	return badRequest(c, fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.Name(), c.Name))
}

func otherVersion(c call, version string) *answer {
	return badRequest(
		c, fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", version, c.kind.apiVersion()),
	)
}

// misshaped refuses what a patch has made.
func misshaped(c call, why string) *answer {
	return errorStatus(http.StatusUnprocessableEntity, "Invalid", ` "" is invalid: patch: Invalid value: `+why, c).about(Object{})
}

func otherKind(c call, kind string) *answer {
	a := invalid(c, fmt.Sprintf("kind: Invalid value: %q: must be %s", kind, c.kind.Kind))
	a.body.Set(kind, "details", "kind")
	return a
}

// insert stores a new object. applied is the managedFields of an apply, nil for
// another kind of write.
func (s *Server) insert(c call, o Object, applied []any) *answer {
	if a := s.homeless(c); a != nil {
		return a
	}
	o["apiVersion"], o["kind"] = c.kind.storedVersion(), c.kind.Kind
	if !c.kind.Cluster {
		o.Set(c.Namespace, "metadata", "namespace")
	}
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		o.drop("metadata", field)
	}
	version := o.ResourceVersion()
	o.drop("metadata", "resourceVersion")
	s.created++
	o.Set(fmt.Sprintf("uid-%06d", s.created), "metadata", "uid")
	o.Set(s.now().Format(time.RFC3339), "metadata", "creationTimestamp")
	if c.kind.traits().spec != "" {
		o.Set(float64(1), "metadata", "generation")
	}
	if c.kind.Status {
		o.drop("status")
	}
	c.kind.prepare(o)
	c.kind.complete(nil, o)
	c.kind.allocate(o)
	c.kind.tidy(o)
	o, a := s.admit(c, "create", nil, o)
	if a != nil {
		return a
	}
	if o.Name() == "" {
		return invalid(c, "metadata.name: Required value: name or generateName is required")
	}
	if err := c.kind.invalidMetadata(o); err != nil {
		return invalid(c, err.Error())
	}
	o = c.kind.withDefaults(o)
	if a := c.unfit(nil, o); a != nil {
		return a
	}
	if e := c.kind.lacks(o); e != nil {
		return invalidField(c, e)
	}
	o, err := s.own(c, nil, o, applied)
	switch {
	case err != nil:
		return refused(c, err, http.StatusUnprocessableEntity)
	case version != "" && c.Verb == "create" && !c.dry():
		return failure(c, http.StatusInternalServerError, "resourceVersion should not be set on objects to be created")
	case s.objects[c.key()] != nil:
		why := fmt.Sprintf("%s %q already exists", c.kind.resource(), c.Name)
		if s.objects[c.key()].Deleting() {
			why = "object is being deleted: " + why
		}
		return errorStatus(http.StatusConflict, "AlreadyExists", why, c)
	case c.dry():
		if version != "" {
			o.Set(version, "metadata", "resourceVersion")
		}
		return success(c, http.StatusCreated, o)
	}
	return success(c, http.StatusCreated, s.commit(c, c.key(), o))
}

// admit returns an object as Admit leaves it, or the refusal.
func (s *Server) admit(c call, verb string, before, o Object) (Object, *answer) {
	if s.Admit == nil {
		return o, nil
	}
	a := &Admission{Verb: verb, Subresource: c.Subresource, By: c.by, Before: before, Object: o}
	if err := s.Admit(a); err != nil {
		return nil, invalid(c, err.Error())
	}
	if o == nil {
		return nil, nil
	}
	admitted, err := a.Object.copy()
	if err != nil {
		return nil, invalid(c, err.Error())
	}
	return admitted, nil
}

// own returns an object with the managedFields that a write leaves.
func (s *Server) own(c call, live, next Object, applied []any) (Object, error) {
	switch {
	case s.Machinery == nil:
		return next, nil
	case applied != nil:
		next.Set(applied, "metadata", "managedFields")
		return next, nil
	}
	return s.Machinery.Update(c.kind.read(live), next, c.write())
}

func (s *Server) update(c call) *answer {
	next, refusal := c.object()
	if refusal != nil {
		return refusal
	}
	switch {
	case next.Name() == "":
		return nameless(c)
	case next.Name() != c.Name:
		return otherName(c, next)
	case next.Namespace() != "" && !c.kind.Cluster && next.Namespace() != c.Namespace:
		return badRequest(
			c,
			fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", next.Namespace(), c.Namespace),
		)
	}
	live := s.objects[c.key()]
	upsert := c.kind.traits().upsert && c.Subresource == ""
	if next.UID() != "" && next.UID() != live.UID() && (live != nil || upsert) {
		return conflict(c, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", next.UID(), live.UID()))
	}
	switch {
	case live == nil && upsert:
		return s.insert(c, next, nil)
	case live == nil:
		return notFound(c)
	}
	return s.replace(c, live, next, nil)
}

// replace makes an object what a client wants it to be. applied is as in insert.
func (s *Server) replace(c call, live, next Object, applied []any) *answer {
	if next.ResourceVersion() == "0" {
		next.drop("metadata", "resourceVersion")
	}
	switch version := next.ResourceVersion(); {
	case version == "" && c.kind.traits().conditional:
		a := invalid(c, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
		a.body.Set(c.Resource, "details", "kind")
		return a
	case version != "" && version != live.ResourceVersion():
		return conflict(c, "the object has been modified; please apply your changes to the latest version and try again")
	}
	next["apiVersion"], next["kind"] = c.kind.storedVersion(), c.kind.Kind
	if next.UID() == "" {
		next.keep(live, "metadata", "uid")
	}
	for _, field := range []string{"creationTimestamp", "generation", "resourceVersion", "selfLink"} {
		next.keep(live, "metadata", field)
	}
	if !c.kind.Cluster && next.Namespace() == "" {
		next.keep(live, "metadata", "namespace")
	}
	if live.Deleting() {
		next.keep(live, "metadata", "deletionTimestamp")
		if next.Field("metadata", "deletionGracePeriodSeconds") == nil {
			next.keep(live, "metadata", "deletionGracePeriodSeconds")
		}
	}
	next = c.prepared(live, next)
	if c.Subresource == "" {
		c.kind.complete(live, next)
		c.kind.allocate(next)
	}
	c.kind.label(next)
	if applied == nil || !c.kind.custom() {
		// An apply may leave an empty map in a custom resource. The next write drops it,
		// and makes a version if it changes nothing else.
		c.kind.tidy(next)
	}
	next, a := s.admit(c, "update", live, next)
	if a != nil {
		return a
	}
	next = c.kind.withDefaults(next)
	if (c.Subresource == "" || c.Subresource == "scale") && c.kind.respecified(live, next) {
		next.Set(live.number("metadata", "generation")+1, "metadata", "generation")
	}
	if why := c.forbidden(live, next); why != "" {
		return invalid(c, why)
	}
	if a := c.unfit(live, next); a != nil {
		return a
	}
	if e := c.wrong(live, next); e != nil {
		return invalidField(c, e)
	}
	next, err := s.own(c, live, next, applied)
	if err != nil {
		return refused(c, err, http.StatusUnprocessableEntity)
	}
	switch {
	case live.Deleting() && next.released():
		if !c.dry() {
			s.commit(c, c.key(), nil)
		}
		return success(c, http.StatusOK, next)
	case c.dry():
		return success(c, http.StatusOK, next)
	case equal(live, next):
		return success(c, http.StatusOK, live)
	}
	return success(c, http.StatusOK, s.commit(c, c.key(), next))
}

// prepared keeps of the live object what the call may not change.
func (c call) prepared(live, next Object) Object {
	switch {
	case c.Subresource == "":
		if c.kind.Status {
			next.keep(live, "status")
		}
		if c.kind.resource() == "namespaces" {
			next.keep(live, "spec", "finalizers")
		}
	case c.Subresource == "finalize":
		next.keep(live, "status")
	case c.Subresource == "status" && c.kind.custom():
		changed := clone(live)
		changed.keep(next, "status")
		return changed
	case c.Subresource == "status":
		changed := clone(live)
		changed.keep(next, "status")
		changed.keep(next, "metadata")
		for _, field := range c.kind.traits().kept {
			changed.keep(live, "metadata", field)
		}
		return changed
	}
	return next
}

// forbidden returns why an object may not become another.
func (c call) forbidden(live, next Object) string {
	for _, field := range []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		if !same(live.Field("metadata", field), next.Field("metadata", field)) {
			return "metadata." + field + ": Invalid value: field is immutable"
		}
	}
	if live.Deleting() && adds(live.list("metadata", "finalizers"), next.list("metadata", "finalizers")) {
		return "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
	}
	if err := c.kind.invalidMetadata(next); err != nil {
		return err.Error()
	}
	return ""
}

// wrong returns a field that an update may not leave as it does.
func (c call) wrong(live, next Object) *fieldError {
	if c.Subresource != "" {
		return nil
	}
	if e := c.kind.lacks(next); e != nil {
		return e
	}
	return c.kind.frozen(live, next)
}

// released reports whether nothing holds an object that is being deleted.
func (o Object) released() bool {
	return len(o.list("metadata", "finalizers")) == 0 && len(o.list("spec", "finalizers")) == 0 &&
		o.number("metadata", "deletionGracePeriodSeconds") == 0
}

// adds reports whether next has an element that live lacks.
func adds(live, next []any) bool {
	return slices.ContainsFunc(next, func(each any) bool { return !slices.Contains(live, each) })
}
