package definitionstest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Reference returns a page in Markdown about the kinds that a program defines: each field with its type, its default,
// what it must be, and what it means. Each of definitions is the YAML of one.
func Reference(program string, definitions ...[]byte) ([]byte, error) {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Kinds of `%s`\n\nThe fields of each kind, generated from its definition by `make generate`.\n", program)
	for _, text := range definitions {
		var definition apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &definition); err != nil {
			return nil, fmt.Errorf("a definition of %s: %w", program, err)
		}
		spec := definition.Spec
		if len(spec.Versions) != 1 || spec.Versions[0].Schema == nil {
			return nil, fmt.Errorf("%s: has %d versions, must have one with a schema", definition.Name, len(spec.Versions))
		}
		version := spec.Versions[0]
		schema := version.Schema.OpenAPIV3Schema
		fmt.Fprintf(&page, "\n## %s\n\n```yaml\napiVersion: %s/%s\nkind: %s\n```\n", spec.Names.Kind, spec.Group, version.Name, spec.Names.Kind)
		page.WriteString("\n| field | type | what |\n|---|---|---|\n")
		fmt.Fprintf(&page, "| | object, %s | %s |\n", strings.ToLower(string(spec.Scope)), cell(schema.Description))
		for _, name := range []string{"spec", "status"} {
			if part, ok := schema.Properties[name]; ok {
				fields(&page, name, part)
			}
		}
	}
	return page.Bytes(), nil
}

// fields writes a row for each field below the one at path.
func fields(page *bytes.Buffer, path string, schema apiextensions.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		at := path + "." + name
		kind := typeOf(field)
		if slices.Contains(schema.Required, name) {
			kind += "; required"
		}
		if field.Default != nil {
			kind += "; default `" + strings.ReplaceAll(string(field.Default.Raw), "|", `\|`) + "`"
		}
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", at, kind, cell(field.Description))
		fields(page, at, field)
		if field.Items != nil && field.Items.Schema != nil {
			fields(page, at+"[]", *field.Items.Schema)
		}
		if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
			fields(page, at+".NAME", *field.AdditionalProperties.Schema)
		}
	}
}

// typeOf returns the type of a field, and what its value must be.
func typeOf(field apiextensions.JSONSchemaProps) string {
	kind := field.Type
	switch {
	case field.XIntOrString:
		kind = "integer or string"
	case field.Items != nil && field.Items.Schema != nil:
		kind = "list of " + typeOf(*field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		kind = "map of " + typeOf(*field.AdditionalProperties.Schema)
	}
	if field.Format != "" {
		kind += ", " + field.Format
	}
	var values []string
	for _, value := range field.Enum {
		values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
	}
	if len(values) > 0 {
		kind += ": " + strings.Join(values, ", ")
	}
	if field.Minimum != nil {
		kind += fmt.Sprintf(", at least %v", *field.Minimum)
	}
	if field.Maximum != nil {
		kind += fmt.Sprintf(", at most %v", *field.Maximum)
	}
	if field.MaxLength != nil {
		kind += fmt.Sprintf(", at most %d characters", *field.MaxLength)
	}
	if field.MaxItems != nil {
		kind += fmt.Sprintf(", at most %d", *field.MaxItems)
	}
	if field.Pattern != "" {
		kind += ", `" + strings.ReplaceAll(field.Pattern, "|", `\|`) + "`"
	}
	return kind
}

// cell is a description in one line, as the cell of a table shows it.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "{{", "{ {", "`", "'", "[", `\[`).Replace(text)
}
