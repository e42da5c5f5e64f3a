package definitionstest

import (
	"bytes"
	"encoding/json"

	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// Defaults returns a Scenario.Admit that sets the defaults of custom resource definitions,
// which a simulated server does not do. definitions returns them as YAML.
func Defaults(definitions func() ([]byte, error)) func(*simtest.Admission) error {
	schemas := map[any]map[string]any{}
	text, err := definitions()
	if err != nil {
		panic(err)
	}
	for document := range bytes.SplitSeq(text, []byte("---\n")) {
		d := simtest.Object{}
		if err := yaml.Unmarshal(document, &d); err != nil {
			panic(err)
		}
		versions, _ := d.Field("spec", "versions").([]any)
		for _, v := range versions {
			version, _ := v.(map[string]any)
			schema, _ := simtest.Object(version).Field("schema", "openAPIV3Schema").(map[string]any)
			schemas[d.Field("spec", "names", "kind")] = schema
		}
	}
	return func(a *simtest.Admission) error {
		if a.Object != nil && schemas[a.Object["kind"]] != nil {
			fill(schemas[a.Object["kind"]], map[string]any(a.Object))
		}
		return nil
	}
}

// fill sets what a value lacks.
func fill(schema map[string]any, value any) {
	items, _ := value.([]any)
	for _, item := range items {
		each, _ := schema["items"].(map[string]any)
		fill(each, item)
	}
	fields, _ := value.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	for name, each := range properties {
		p, _ := each.(map[string]any)
		if fields == nil {
			return
		}
		if fields[name] == nil && p["default"] != nil {
			fields[name] = own(p["default"])
		}
		fill(p, fields[name])
	}
}

// own returns a copy of a default.
func own(value any) (copied any) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	if err != nil {
		panic(err) // it was read from YAML
	}
	return copied
}
