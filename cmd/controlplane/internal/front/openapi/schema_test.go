package openapi_test

import (
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

type object = map[string]any

const module = "github.com/seed-9e1ffd66/trueup/"

// use is what a type is there for.
type use int

const (
	// answered is a body that the server writes.
	answered use = iota
	// asked is a body that an administrator writes: it may leave out members.
	asked
	// tolerated is a body of an agent, which may be newer: it may have more members, too.
	tolerated
)

// schemas makes JSON schemas of Go types and protobuf messages, each under a name.
type schemas struct {
	t     *testing.T
	named map[string]any
	// responses are the errors, by status and codes.
	responses map[string]any
	types     map[string]reflect.Type
	comments  map[string]map[string]string // by type, then by field; "" is the type's own
	parsed    map[string]bool
}

func newSchemas(t *testing.T) *schemas {
	t.Helper()
	return &schemas{
		t:         t,
		named:     map[string]any{},
		responses: map[string]any{},
		types:     map[string]reflect.Type{},
		comments:  map[string]map[string]string{},
		parsed:    map[string]bool{},
	}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type, as use) any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[*big.Int]():
		return object{"type": "integer"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t == reflect.TypeFor[struct{}]():
		return object{"type": "object", "additionalProperties": false}
	case t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), as)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int32:
		return object{"type": "integer"}
	case reflect.Int, reflect.Int64: // beyond what a float64 holds
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint32:
		return object{"type": "integer", "format": "uint32", "minimum": 0}
	case reflect.Uint, reflect.Uint64:
		return object{"type": "integer", "format": "uint64", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		items := object{"type": "array", "items": s.of(t.Elem(), as)}
		if as != tolerated { // a nil slice is null, and null is none
			items["type"] = []string{"array", "null"}
		}
		return items
	case reflect.Map:
		values := object{"type": "object", "additionalProperties": s.of(t.Elem(), as)}
		if as != tolerated {
			values["type"] = []string{"object", "null"}
		}
		return values
	case reflect.Struct:
		return s.object(t, as)
	default:
		s.t.Fatalf("%s has no schema", t)
		return nil
	}
}

func (s *schemas) object(t reflect.Type, as use) any {
	name := s.name(t)
	if as != answered && !strings.HasSuffix(name, "Body") {
		name += "Body"
	}
	if have, ok := s.types[name]; ok {
		require.Equal(s.t, have, t, "two types are called %s", name)
		return ref(name)
	}
	s.types[name] = t
	properties, required := object{}, []string{}
	s.fields(t, as, properties, &required)
	schema := object{"type": "object", "properties": properties}
	if as != tolerated {
		schema["additionalProperties"] = false
	}
	if text := s.comment(t, ""); text != "" {
		schema["description"] = text
	}
	if len(required) > 0 && as == answered {
		slices.Sort(required)
		schema["required"] = required
	}
	s.named[name] = schema
	if t == reflect.TypeFor[starbase.Snapshot]() {
		return object{"anyOf": []any{ref(name), object{"description": "Any other record is answered in `rejected`, and holds back none."}}}
	}
	return ref(name)
}

// require marks members of a body that a request must have.
func (s *schemas) require(t reflect.Type, members []string) {
	if len(members) == 0 {
		return
	}
	name := s.name(t)
	if !strings.HasSuffix(name, "Body") {
		name += "Body"
	}
	if schema, ok := s.named[name].(object); ok {
		schema["required"] = members
	}
}

func (s *schemas) fields(t reflect.Type, as use, properties object, required *[]string) {
	for field := range t.Fields() {
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && tag == "":
			s.fields(field.Type, as, properties, required)
			continue
		case !field.IsExported() || tag == "-":
			continue
		}
		require.NotEmpty(s.t, tag, "%s.%s has no name in JSON", t, field.Name)
		schema := s.of(field.Type, as)
		if text := s.comment(t, field.Name); text != "" {
			described := object{"description": text}
			maps.Copy(described, schema.(object)) //nolint:forcetypeassert // of returns nothing else
			schema = described
		}
		properties[tag] = schema
		if !strings.Contains(options, "omit") {
			*required = append(*required, tag)
		}
	}
}

// name returns what the document calls a type: one that its package keeps to itself is
// called after that, too.
func (s *schemas) name(t reflect.Type) string {
	name := t.Name()
	require.NotEmpty(s.t, name, "%s has no name", t)
	if ast.IsExported(name) {
		return name
	}
	of := strings.TrimSuffix(filepath.Base(t.PkgPath()), "s")
	name, _ = strings.CutPrefix(strings.ToLower(name[:1])+name[1:], of)
	return strings.ToUpper(of[:1]) + of[1:] + strings.ToUpper(name[:1]) + name[1:]
}

// links are references to Go in a comment.
var links = regexp.MustCompile(`\[([A-Za-z]+\.)?([A-Za-z.]+)\]`)

// comment returns what the source says of a type or a field, with the names that JSON has.
func (s *schemas) comment(t reflect.Type, field string) string {
	s.parse(t.PkgPath())
	text := s.comments[t.PkgPath()+"."+t.Name()][field]
	text = strings.Join(strings.Fields(links.ReplaceAllString(text, "$2")), " ")
	for f := range t.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" && tag != "-" {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, "`"+tag+"`")
		}
	}
	if text = strings.TrimPrefix(text, t.Name()+" is "); text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}

// parse reads the comments of a package.
func (s *schemas) parse(path string) {
	if s.parsed[path] || !strings.HasPrefix(path, module) {
		return
	}
	s.parsed[path] = true
	files, err := filepath.Glob(filepath.Join(root(s.t), strings.TrimPrefix(path, module), "*.go"))
	require.NoError(s.t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(s.t, err)
		for _, declaration := range tree.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				spec, _ := spec.(*ast.TypeSpec)
				said := map[string]string{"": types.Doc.Text()}
				if fields, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range fields.Fields.List {
						for _, name := range field.Names {
							said[name.Name] = field.Doc.Text()
						}
					}
				}
				s.comments[path+"."+spec.Name.Name] = said
			}
		}
	}
}

// root is the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "there is no go.work above")
		dir = filepath.Dir(dir)
	}
}

// part returns the schema of the body of a list.
func (s *schemas) part(p adminapi.Part) object {
	return object{
		"type": "object", "required": []string{p.Name}, "additionalProperties": false,
		"properties": object{
			p.Name: object{"type": "array", "items": s.of(reflect.TypeOf(p.Item), answered)},
			"next": object{"type": "string", "description": "The `after` of the next part. It is absent in the last one."},
		},
	}
}

// logError names the schema of the errors of a log: they say where it stands, too.
func (s *schemas) logError() {
	detail := s.of(reflect.TypeFor[statesync.Position](), answered)
	s.named["LogError"] = object{
		"type": "object", "required": []string{"error"}, "additionalProperties": false,
		"properties": object{"error": object{
			"type": "object", "required": []string{"code", "message"}, "additionalProperties": false,
			"properties": object{
				"code":       object{"type": "string", "description": "One word for programs."},
				"message":    object{"type": "string", "description": "One sentence for people."},
				"fields":     object{"type": "array", "items": ref("FieldError")},
				"request_id": object{"type": "string"},
				"reason":     object{"type": "string", "description": "Why a cursor cannot be resumed."},
				"position":   object{"description": "Where the log stands.", "anyOf": []any{detail}},
				"cursor":     s.of(reflect.TypeFor[statesync.Cursor](), answered),
			},
		}},
	}
}

// message returns the schema of a protobuf message in its JSON form.
func (s *schemas) message(m protoreflect.MessageDescriptor) any {
	name := string(m.Name())
	if _, ok := s.named[name]; ok {
		return ref(name)
	}
	schema := object{"type": "object", "description": "The message " + string(m.FullName()) + " in the JSON form of protobuf."}
	s.named[name] = schema
	properties := object{}
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		one := s.value(field)
		switch {
		case field.IsMap():
			one = object{"type": "object", "additionalProperties": s.value(field.MapValue())}
		case field.IsList():
			one = object{"type": "array", "items": one}
		}
		properties[field.JSONName()] = one
	}
	schema["properties"] = properties
	return ref(name)
}

func (s *schemas) value(field protoreflect.FieldDescriptor) any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		if field.IsMap() {
			return nil
		}
		return s.message(field.Message())
	case protoreflect.EnumKind:
		var names []string
		for i := range field.Enum().Values().Len() {
			names = append(names, string(field.Enum().Values().Get(i).Name()))
		}
		return object{"type": "string", "enum": names}
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.Int64Kind, protoreflect.Uint64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return object{"type": "string", "description": "A number of 64 bits, as text."}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{"type": "number"}
	default:
		return object{"type": "integer"}
	}
}

// fixed writes an example without what is another each time.
func fixed(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = fixed(v[i])
		}
	case object:
		for key, member := range v {
			switch text, isText := member.(string); {
			case isText && isTime(text):
				v[key] = "2026-01-31T12:00:00Z"
			case key == "snapshot_id":
				v[key] = strings.Repeat("0123456789abcdef", 4)
			case key == "day":
				v[key] = "2026-01-31"
			case key == "token":
				v[key] = strings.Repeat("0123456789abcdef", 4)
			case isText && slices.Contains([]string{"epoch", "log_epoch", "reported_epoch", "request_id", "version", "checksum", "mark", "from", "last_pull_version", "actor", "fingerprint"}, key):
				v[key] = map[string]string{"from": "192.0.2.7", "actor": "admin/0a1b2c3d", "fingerprint": "0a1b2c3d"}[key]
				if v[key] == "" {
					v[key] = "0123456789abcdef0123456789abcdef"
				}
			case key == "value" && len(text) == len("0123456789abcdef-6.0123456789abcdef"): // the version of a desired state
				v[key] = "0123456789abcdef-6.0123456789abcdef"
			case key == "id" && len(text) == 24:
				v[key] = "0123456789abcdef01234567"
			case slices.Contains([]string{"queue_oldest_seconds", "stalled_seconds", "queue_depth", "log_head", "head", "after"}, key) && !isText:
				v[key] = 0
			default:
				v[key] = fixed(member)
			}
		}
	}
	return value
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
