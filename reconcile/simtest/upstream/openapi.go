package upstream

import (
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// converterOf knows the types of a custom kind by its definition, for applies.
func converterOf(kind simtest.Kind, fields *structuralschema.Structural) (managedfields.TypeConverter, error) {
	models := map[string]*spec.Schema{}
	for name, each := range openapi.GetOpenAPIDefinitions(reference) {
		models[name] = &each.Schema
	}
	own := fields.Unfold().ToKubeOpenAPI()
	embed(own)
	identify(own)
	own.AddExtension("x-kubernetes-group-version-kind", []any{
		map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
	})
	models["custom"] = own
	return managedfields.NewTypeConverter(models, false)
}

func reference(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) }

// identify adds what each object has.
func identify(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", spec.Schema{SchemaProps: spec.SchemaProps{Ref: reference(metav1.ObjectMeta{}.OpenAPIModelName())}})
}

// embed adds it to the objects within an object.
func embed(s *spec.Schema) {
	if s == nil {
		return
	}
	for name, each := range s.Properties {
		embed(&each)
		s.Properties[name] = each
	}
	if s.Items != nil {
		embed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		embed(s.AdditionalProperties.Schema)
	}
	if is, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); ok && is {
		identify(s)
		for _, name := range []string{"apiVersion", "kind"} {
			if !slices.Contains(s.Required, name) {
				s.Required = append(s.Required, name)
			}
		}
	}
}
