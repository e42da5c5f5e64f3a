package simtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Schema is what the definition of a custom kind says of its objects, such as that of
// Definitions in reconcile/simtest/upstream. No argument may be changed. The methods may be
// called at the same time.
type Schema interface {
	// Read returns what a server makes of an object that a request has sent, or that a patch has
	// made: without the fields that the schema does not have, and with its defaults. body is that
	// of the request. wrong is what a server refuses only if the request asks for it
	// (fieldValidation=Strict): the unknown fields, and those that are there twice. An error is
	// that of an object whose metadata cannot be read.
	Read(o Object, body []byte) (read Object, wrong []string, err error)
	// Default returns the object with the defaults.
	Default(o Object) Object
	// Invalid returns why an object may not be stored in place of live, nil if it may. live is
	// nil if the object is created. subresource is empty or such as status.
	Invalid(live, next Object, subresource string) []Cause
}

// Cause is why an object is invalid, as in the details of a metav1.Status.
type Cause struct{ Reason, Field, Message string }

// Scale has the paths of the fields that the subresource scale shows, such as spec.replicas.
// Selector is empty, or that of a label selector as text.
type Scale struct{ Replicas, StatusReplicas, Selector string }

// read is what the server makes of an object that a request has brought. refuse makes the answer
// if there is something wrong with it.
func (c call) read(o Object, refuse func(why string) *answer) (Object, *answer) {
	if c.kind.Schema == nil {
		return o, nil
	}
	read, wrong, err := c.kind.Schema.Read(o, c.body)
	switch {
	case err != nil:
		return nil, refuse(err.Error())
	case len(wrong) > 0 && c.option("fieldValidation") == "Strict":
		return nil, refuse("strict decoding error: " + strings.Join(wrong, ", "))
	}
	return read, nil
}

// unreadable refuses a body that is no object of the kind.
func (c call) unreadable(why string) *answer {
	return badRequest(c, fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", c.kind.Kind, c.kind.Version, c.kind.Kind, why))
}

// unpatchable refuses what a patch has made.
func (c call) unpatchable(next Object, why string) *answer {
	text, err := encode(next)
	if err != nil {
		return badRequest(c, err.Error())
	}
	why = fmt.Sprintf("%q: %s", text, why)
	return misshaped(c, why).about(Object{
		"causes": inDetails([]Cause{{"FieldValueInvalid", "patch", "Invalid value: " + why}}),
	})
}

func (k Kind) withDefaults(o Object) Object {
	if k.Schema == nil {
		return o
	}
	return k.Schema.Default(o)
}

// unfit refuses an object that its schema does not allow, nil if it does.
func (c call) unfit(live, next Object) *answer {
	if c.kind.Schema == nil {
		return nil
	}
	all := c.kind.Schema.Invalid(live, next, c.Subresource)
	if len(all) == 0 {
		return nil
	}
	var texts []string
	for _, each := range all {
		if text := each.Field + ": " + each.Message; !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	why := strings.Join(texts, ", ")
	if len(texts) > 1 {
		why = "[" + why + "]"
	}
	a := invalid(c, why)
	a.body.Set(inDetails(all), "details", "causes")
	return a
}

// inDetails are causes as JSON decodes them.
func inDetails(all []Cause) (causes []any) {
	for _, each := range all {
		causes = append(causes, map[string]any{"reason": each.Reason, "field": each.Field, "message": each.Message})
	}
	return causes
}

// scale is where the kind has what the subresource scale shows, nil if it has none.
func (k Kind) scale() *Scale {
	if k.Scale == nil && k.traits().scale {
		return &Scale{Replicas: "spec.replicas", StatusReplicas: "status.replicas"}
	}
	return k.Scale
}

// scaleOf is the scale of an object.
func (k Kind) scaleOf(o Object) Object {
	at := k.scale()
	scale := Object{
		"kind": "Scale", "apiVersion": "autoscaling/v1",
		"spec": map[string]any{}, "status": map[string]any{"replicas": o.number(strings.Split(at.StatusReplicas, ".")...)},
	}
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		scale.keep(o, "metadata", field)
	}
	if n := o.number(strings.Split(at.Replicas, ".")...); n > 0 {
		scale.Set(n, "spec", "replicas")
	}
	selector := selectorText(o)
	if k.custom() {
		selector = o.text(strings.Split(at.Selector, ".")...)
	}
	if selector != "" {
		scale.Set(selector, "status", "selector")
	}
	return scale
}

// unscalable refuses to show a scale of a custom object that does not say how many it wants.
func (c call) unscalable(o Object) *answer {
	path := c.kind.scale().Replicas
	if !c.kind.custom() || o.Field(strings.Split(path, ".")...) != nil {
		return nil
	}
	why := fmt.Sprintf("the spec replicas field %q does not exist", "."+path)
	a := errorStatus(http.StatusInternalServerError, "InternalError", "Internal error occurred: "+why, c)
	return a.about(Object{"causes": []any{map[string]any{"message": why}}})
}
