package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// ErrDropped is the error of a status of which the server stored nothing.
var ErrDropped = errors.New("the server dropped all written fields; its schema may lack them")

// Status writes the status of objects, and only when it changes. It serves the
// objects of one kind that has a status subresource. T is the type of a
// [Controller]. Status holds no state, and is safe for concurrent use. It needs get
// on the resource and patch on its status.
//
// It sends a merge patch of the differences, with the resourceVersion of the
// object. (Server-side apply would require a schema with conditions as a map by
// type, and would replace the conditions of other managers without one.)
type Status[T metav1.Object] struct {
	// Client reaches the API server. Required.
	Client dynamic.Interface

	// Resource is the kind of the objects. Required.
	Resource schema.GroupVersionResource

	// Conditions are the condition types that only this Status writes. Such a
	// condition is removed when an update leaves it out, and a condition of another
	// type is never changed. Default nil: an update may set any type and removes
	// none.
	Conditions []string

	// OnWrite is called with the object after each write. [Controller.Wrote] fits.
	// Default nil.
	OnWrite func(object metav1.Object)
}

// Update calls update with the object, and writes the changes of its status. No
// request is sent without a change. Changes outside the status are not written.
// Update adds to the changes:
//
//   - status.observedGeneration becomes the generation of the object, if T has the
//     field. So does the observedGeneration of each condition that is listed in
//     Status.Conditions, was changed, or was set by [SetCondition] or [SetState], also
//     to what it was.
//   - The lastTransitionTime of a condition stays while its status stays, also if
//     update builds the list from nothing. A missing one becomes the current time.
//   - Conditions are sorted by type, one of each. A condition that update leaves out
//     is kept, except as in Status.Conditions.
//
// After a conflict the status is read again, and update is called once more with
// it. It must therefore compute the status elsewhere and only set it. A
// deleted object, one replaced by a successor of the same name, and one whose
// status observed a later generation are not written, without an error. The object
// then has none of the changes: a caller that acts on a recorded status looks there
// for it.
//
// The object must belong to the caller, as one passed by a [Controller] does. Its
// status, resourceVersion, finalizers and deletionTimestamp become those that the
// server answered or that were read. The rest stays as the caller has read it, also when it was edited meanwhile:
// a status is about the spec that the pass has seen. The error is the
// error of a request, or [ErrDropped]: the schema of the server lacks the fields.
func (s *Status[T]) Update(ctx context.Context, object T, update func(object T)) error {
	switch {
	case s.Client == nil:
		return errors.New("kube: Status.Client: is required")
	case s.Resource.Resource == "":
		return errors.New("kube: Status.Resource: is required")
	}
	resource := s.Client.Resource(s.Resource).Namespace(object.GetNamespace())
	generation, uid, name := object.GetGeneration(), object.GetUID(), object.GetName()
	for attempt := 1; ; attempt++ {
		before, changes, err := s.changes(object, generation, update)
		if err != nil || len(changes) == 0 {
			return s.describe(object, err)
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": uid, "resourceVersion": object.GetResourceVersion()}, "status": changes,
		})
		if err != nil {
			return s.describe(object, err)
		}
		written, err := resource.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil {
			return s.wrote(object, written, changes)
		}
		if !apierrors.IsNotFound(err) && (attempt == attempts || !apierrors.IsConflict(err)) {
			return s.describe(object, err)
		}
		current, getErr := resource.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && current.GetUID() != uid:
			return s.describe(object, setStatus(object, before))
		case getErr != nil:
			return s.describe(object, getErr)
		case apierrors.IsNotFound(err):
			return s.describe(object, fmt.Errorf("the resource has no status subresource: %w", err))
		}
		if observed, _, _ := unstructured.NestedInt64(current.Object, "status", "observedGeneration"); observed > generation {
			return s.describe(object, setStatus(object, before))
		}
		if err := take(object, current); err != nil {
			return s.describe(object, err)
		}
	}
}

// take gives the object the status of a later state of it, and the metadata that a pass relies on: with the
// resourceVersion alone, a Finalizer would write the finalizers of before as if nothing had changed.
func take[T metav1.Object](object T, later *unstructured.Unstructured) error {
	status, _, err := unstructured.NestedMap(later.Object, "status")
	if err != nil {
		return err
	}
	copyMetadata(object, later)
	return setStatus(object, status)
}

// changes calls update and returns the status before it and the merge patch of it.
func (s *Status[T]) changes(object T, generation int64, update func(T)) (before, patch map[string]any, err error) {
	if before, err = statusOf(object); err != nil {
		return nil, nil, err
	}
	observed := observedConditions(object)
	update(object)
	observe(object, observed, generation)
	stated, err := statusOf(object)
	if err != nil {
		return nil, nil, err
	}
	after := copyObject(stated)
	s.merge(before, after, generation, time.Now())
	if !reflect.DeepEqual(stated, after) {
		// Converted to T and back, so that a field that T lacks is not written in each
		// pass.
		if err := setStatus(object, after); err != nil {
			return nil, nil, err
		}
		if after, err = statusOf(object); err != nil {
			return nil, nil, err
		}
	}
	return before, mergePatch(before, after), nil
}

func (s *Status[T]) wrote(object T, written *unstructured.Unstructured, changes map[string]any) error {
	if written.GetResourceVersion() == object.GetResourceVersion() {
		fields, _ := json.Marshal(changes)
		return s.describe(object, fmt.Errorf("%w: %s", ErrDropped, fields))
	}
	if err := take(object, written); err != nil {
		return s.describe(object, err)
	}
	if s.OnWrite != nil {
		s.OnWrite(object)
	}
	return nil
}

func (s *Status[T]) describe(object T, err error) error {
	if err == nil {
		return nil
	}
	return describe(s.Resource, KeyOf(object), fmt.Errorf("status: %w", err))
}

// statusOf returns the status as decoded JSON, nil if there is none.
func statusOf(object any) (map[string]any, error) {
	var data []byte
	var err error
	if field := statusField(object); field.IsValid() {
		data, err = json.Marshal(field.Addr().Interface()) // the rest would cost more
	} else {
		var fields map[string]json.RawMessage // the rest is not decoded
		if data, err = json.Marshal(object); err == nil {
			err = json.Unmarshal(data, &fields)
		}
		data = fields["status"]
	}
	if err != nil || data == nil {
		return nil, err
	}
	var status any
	if err := decodeNumbers(data, &status); err != nil {
		return nil, err
	}
	asMap, _ := status.(map[string]any)
	return asMap, nil
}

// setStatus replaces the status by decoded JSON, nil for none.
func setStatus[T metav1.Object](object T, status map[string]any) error {
	field := statusField(object)
	if !field.IsValid() {
		whole, err := toMap(object)
		if err != nil {
			return err
		}
		if whole["status"] = status; status == nil {
			delete(whole, "status")
		}
		return assign(object, whole)
	}
	data, err := json.Marshal(status)
	if err != nil {
		return err
	}
	fresh := reflect.New(field.Type())
	if err := json.Unmarshal(data, fresh.Interface()); err != nil {
		return err
	}
	field.Set(fresh.Elem())
	return nil
}

// statusField returns the field of a struct that JSON calls status. It is not valid if
// there is none, or if JSON is not made of the fields.
func statusField(object any) (none reflect.Value) {
	if _, ok := object.(json.Marshaler); ok {
		return none
	}
	value := reflect.ValueOf(object)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return none
	}
	value = value.Elem()
	for i := range value.NumField() {
		tag := value.Type().Field(i).Tag.Get("json")
		if name, options, _ := strings.Cut(tag, ","); name == "status" && options != "string" && value.Type().Field(i).IsExported() {
			return value.Field(i)
		}
	}
	return none
}

// conditionsField returns the conditions of an object, nil if its type has none as a list of
// [metav1.Condition].
func conditionsField(object any) *[]metav1.Condition {
	status := statusField(object)
	if status.IsValid() && status.Kind() == reflect.Pointer {
		status = status.Elem()
	}
	if !status.IsValid() || status.Kind() != reflect.Struct {
		return nil
	}
	for i := range status.NumField() {
		field := status.Type().Field(i)
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == "conditions" && field.IsExported() {
			conditions, _ := status.Field(i).Addr().Interface().(*[]metav1.Condition)
			return conditions
		}
	}
	return nil
}

// observedConditions returns the types of the conditions that have an observedGeneration.
func observedConditions(object any) (kinds []string) {
	if conditions := conditionsField(object); conditions != nil {
		for _, c := range *conditions {
			if c.ObservedGeneration != 0 {
				kinds = append(kinds, c.Type)
			}
		}
	}
	return kinds
}

// observe gives the conditions that had an observedGeneration and were set without one the
// generation. merge would, too, but each pass would cost another encoding.
func observe(object any, kinds []string, generation int64) {
	if conditions := conditionsField(object); conditions != nil {
		for i := range *conditions {
			if c := &(*conditions)[i]; c.ObservedGeneration == 0 && slices.Contains(kinds, c.Type) {
				c.ObservedGeneration = generation
			}
		}
	}
}

func toMap(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	return whole, decodeNumbers(data, &whole)
}

// decodeNumbers decodes JSON, numbers as json.Number: a float64 does not hold every
// int64.
func decodeNumbers(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// copyObject returns a deep copy of decoded JSON, an empty map for nil.
func copyObject(object map[string]any) map[string]any {
	copied := make(map[string]any, len(object))
	for name, value := range object {
		copied[name] = copyValue(value)
	}
	return copied
}

func copyValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		return copyObject(value)
	case []any:
		copied := make([]any, len(value))
		for i := range value {
			copied[i] = copyValue(value[i])
		}
		return copied
	default:
		return value
	}
}

// assign replaces the contents of object by current.
func assign[T metav1.Object](object T, current any) error {
	data, err := json.Marshal(current)
	if err != nil {
		return err
	}
	fresh, err := decode[T](data)
	if err != nil {
		return err
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(fresh).Elem())
	return nil
}

// mergePatch returns the JSON merge patch (RFC 7386) that turns before into after.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range before {
		if _, ok := after[name]; !ok {
			patch[name] = nil
		}
	}
	for name, value := range after {
		old, had := before[name]
		inner, isMap := value.(map[string]any)
		oldInner, wasMap := old.(map[string]any)
		switch {
		case isMap && wasMap:
			if deeper := mergePatch(oldInner, inner); len(deeper) > 0 {
				patch[name] = deeper
			}
		case !had && value == nil:
			// A merge patch cannot write null.
		case !had || !reflect.DeepEqual(old, value):
			patch[name] = value
		}
	}
	return patch
}
