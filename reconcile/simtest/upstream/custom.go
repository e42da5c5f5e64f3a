package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	kjson "sigs.k8s.io/json"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// custom is the schema of a custom kind, in the order of steps of a real server.
type custom struct {
	fields        *structuralschema.Structural
	whole, status validation.SchemaValidator
	rules         *cel.Validator // nil without rules
	scale         *simtest.Scale
	types         managedfields.TypeConverter
}

var _ simtest.Schema = (*custom)(nil)

func newCustom(kind simtest.Kind, given *apiextensions.JSONSchemaProps) (*custom, error) {
	fields, err := structuralschema.NewStructural(given)
	if err != nil {
		return nil, err
	}
	fields = fields.DeepCopy()
	if err := defaulting.PruneDefaults(fields); err != nil {
		return nil, err
	}
	c := &custom{fields: fields, scale: kind.Scale, rules: cel.NewValidator(fields, true, celconfig.PerCallLimit)}
	if c.whole, _, err = validation.NewSchemaValidator(given); err != nil {
		return nil, err
	}
	if status, ok := given.Properties["status"]; ok {
		if c.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	c.types, err = converterOf(kind, fields)
	return c, err
}

// Read implements [simtest.Schema].
func (c *custom) Read(o simtest.Object, body []byte) (simtest.Object, []string, error) {
	read := integral(o)
	metadata, found, wrong, err := objectmeta.GetObjectMetaWithOptions(read, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, nil, err
	}
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	wrong = append(wrong, pruning.PruneWithOptions(read, c.fields, true, track)...)
	defaulting.PruneNonNullableNullsWithoutDefaults(read, c.fields)
	failed, embedded := objectmeta.CoerceWithOptions(nil, read, c.fields, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if failed != nil {
		return nil, nil, failed
	}
	if found {
		if err := objectmeta.SetObjectMeta(read, metadata); err != nil {
			return nil, nil, err
		}
	}
	defaulting.Default(read, c.fields)
	wrong = append(wrong, embedded...)
	for i, path := range wrong {
		wrong[i] = fmt.Sprintf("unknown field %q", path)
	}
	next, err := copied(read)
	return next, append(twice(body), wrong...), err
}

// twice says which fields of an object are there twice.
func twice(body []byte) []string {
	var all []string
	var o map[string]any
	strict, err := kjson.UnmarshalStrict(body, &o)
	if err != nil {
		return nil // it was no JSON, and the answer to that is another one
	}
	for _, each := range strict {
		all = append(all, each.Error())
	}
	return all
}

// Default implements [simtest.Schema].
func (c *custom) Default(o simtest.Object) simtest.Object {
	all := integral(o)
	defaulting.Default(all, c.fields)
	next, err := copied(all)
	if err != nil {
		return o // of what was JSON: it cannot fail
	}
	return next
}

// Invalid implements [simtest.Schema]. The causes have an order, which they have not in a real
// server.
func (c *custom) Invalid(live, next simtest.Object, subresource string) []simtest.Cause {
	now, before := integral(next), integral(live)
	ctx := context.Background() //nolint:forbidigo // the rules wait for nothing
	var errs, more field.ErrorList
	var old any // and no nil map
	var options []cel.Option
	if live == nil {
		errs = validation.ValidateCustomResource(nil, now, c.whole)
	} else {
		same := common.NewCorrelatedObject(now, before, &model.Structural{Structural: c.fields})
		errs, old, options = c.changes(before, now, same, subresource), before, []cel.Option{cel.WithRatcheting(same)}
	}
	if subresource != "status" {
		more = append(more, objectmeta.Validate(nil, now, c.fields, false)...)
	}
	if live == nil || len(listtype.ValidateListSetsAndMaps(nil, c.fields, before)) == 0 {
		more = append(more, listtype.ValidateListSetsAndMaps(nil, c.fields, now)...)
	}
	all := slices.Concat(causes(errs), causes(c.scales(now, subresource)), causes(more))
	if c.rules == nil {
		return all
	}
	broken := field.ErrorList{field.Invalid(nil, nil, unchecked)}
	if !slices.ContainsFunc(slices.Concat(errs, more), blocks) {
		broken, _ = c.rules.Validate(ctx, nil, c.fields, now, old, celconfig.RuntimeCELCostBudget, options...)
	}
	return append(all, causes(broken)...)
}

const unchecked = "some validation rules were not checked because the object was invalid; " +
	"correct the existing errors to complete validation"

// changes validates a change. What was invalid before, and has not changed, is allowed.
func (c *custom) changes(before, now map[string]any, same *common.CorrelatedObject, subresource string) field.ErrorList {
	if subresource != "status" {
		return validation.ValidateCustomResourceUpdate(nil, now, before, c.whole, validation.WithRatcheting(same))
	}
	status, ok := now["status"]
	if !ok {
		return nil
	}
	ratcheting := validation.WithRatcheting(same.Key("status"))
	return validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before["status"], c.status, ratcheting)
}

// scales validates what the subresource scale shows.
func (c *custom) scales(o map[string]any, subresource string) (errs field.ErrorList) {
	if c.scale == nil {
		return nil
	}
	paths := []string{c.scale.Replicas, c.scale.StatusReplicas}
	if subresource == "status" {
		paths = paths[1:]
	}
	for _, path := range paths {
		n, _, err := unstructured.NestedInt64(o, strings.Split(path, ".")...)
		at := field.NewPath("." + path)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(at, n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if c.scale.Selector == "" {
		return errs
	}
	if text, _, err := unstructured.NestedString(o, strings.Split(c.scale.Selector, ".")...); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("."+c.scale.Selector), text, err.Error()))
	}
	return errs
}

// blocks reports whether rules cannot be evaluated on an object with this error.
func blocks(err *field.Error) bool {
	return slices.Contains([]field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}, err.Type)
}

// causes are errors of one validator in the order of their fields: its own one is random.
func causes(errs field.ErrorList) []simtest.Cause {
	var all []simtest.Cause
	for _, each := range errs {
		all = append(all, simtest.Cause{Reason: string(each.Type), Field: each.Field, Message: each.ErrorBody()})
	}
	slices.SortStableFunc(all, func(a, b simtest.Cause) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return all
}

// integral copies an object, with int64 for the numbers without a fraction, as the code of a
// server has them.
func integral(o simtest.Object) map[string]any {
	data, err := json.Marshal(o)
	var all map[string]any
	if err == nil {
		err = utiljson.Unmarshal(data, &all)
	}
	if err != nil {
		return nil // of what was JSON: it cannot fail
	}
	return all
}
