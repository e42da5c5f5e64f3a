package diff

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// formatPath writes a path in the form of [Field.Path]:
//
//	.spec.replicas                              a field
//	.metadata.annotations["example.com/owner"]  a field whose name is not plain
//	.spec.containers[name="main"].image         in the list item with that key
//	.spec.ports[port=53,protocol="UDP"]         with several
//	.metadata.finalizers[="example.com/x"]      an element of a set
//	.spec.rules[2]                              the third item of a list
func formatPath(path fieldpath.Path) string {
	var b strings.Builder
	for _, at := range path {
		formatElement(&b, at)
	}
	return b.String()
}

func formatElement(b *strings.Builder, at fieldpath.PathElement) {
	switch {
	case at.FieldName != nil && plain(*at.FieldName):
		b.WriteString("." + *at.FieldName)
	case at.FieldName != nil:
		b.WriteString("[" + string(valueOf(*at.FieldName)) + "]")
	case at.Key != nil:
		separator := "["
		for _, part := range *at.Key {
			name := part.Name
			if !plain(name) {
				name = string(valueOf(name))
			}
			b.WriteString(separator + name + "=" + string(valueOf(part.Value.Unstructured())))
			separator = ","
		}
		b.WriteString("]")
	case at.Value != nil:
		b.WriteString("[=" + string(valueOf((*at.Value).Unstructured())) + "]")
	case at.Index != nil:
		b.WriteString("[" + strconv.Itoa(*at.Index) + "]")
	default:
		b.WriteString("[*]")
	}
}

// plain reports whether a field's name needs no quotes.
func plain(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', r == '$':
		case i > 0 && (r >= '0' && r <= '9' || r == '-'):
		default:
			return false
		}
	}
	return name != ""
}

// parsePath reads what formatPath writes, and [*] for every item of a list: a
// path element that is all zero.
func parsePath(text string) (fieldpath.Path, error) {
	var path fieldpath.Path
	p := pathParser{rest: text}
	if text == "" {
		return nil, errors.New("is empty; a path begins with a dot: .spec.replicas")
	}
	for p.rest != "" {
		at, err := p.element()
		if err != nil {
			return nil, fmt.Errorf("at offset %d: %w", len(text)-len(p.rest), err)
		}
		path = append(path, at)
	}
	return path, nil
}

type pathParser struct{ rest string }

func (p *pathParser) element() (fieldpath.PathElement, error) {
	switch {
	case p.take("."):
		name, err := p.name()
		return fieldpath.PathElement{FieldName: &name}, err
	case p.take("["):
		at, err := p.brackets()
		if err == nil && !p.take("]") {
			err = errors.New("want ] here")
		}
		return at, err
	default:
		return fieldpath.PathElement{}, errors.New("want .name or [ here, as in .spec.replicas")
	}
}

func (p *pathParser) brackets() (fieldpath.PathElement, error) {
	switch {
	case p.take("*"):
		return fieldpath.PathElement{}, nil
	case p.take("="):
		v, err := p.json()
		if err != nil {
			return fieldpath.PathElement{}, err
		}
		element := value.NewValueInterface(v)
		return fieldpath.PathElement{Value: &element}, nil
	case p.rest != "" && p.rest[0] >= '0' && p.rest[0] <= '9':
		end := strings.IndexFunc(p.rest, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(p.rest)
		}
		index, err := strconv.Atoi(p.rest[:end])
		if err == nil {
			p.rest = p.rest[end:]
		}
		return fieldpath.PathElement{Index: &index}, err
	default:
		return p.nameOrKey()
	}
}

// nameOrKey reads "name" or name=value,name=value.
func (p *pathParser) nameOrKey() (fieldpath.PathElement, error) {
	var key value.FieldList
	for {
		quoted := strings.HasPrefix(p.rest, `"`)
		name, err := p.keyName(quoted)
		if err != nil {
			return fieldpath.PathElement{}, err
		}
		if len(key) == 0 && quoted && strings.HasPrefix(p.rest, "]") {
			return fieldpath.PathElement{FieldName: &name}, nil
		}
		if !p.take("=") {
			return fieldpath.PathElement{}, fmt.Errorf("want [%s=value], [=value], [\"name\"], [0] or [*]", name)
		}
		v, err := p.json()
		if err != nil {
			return fieldpath.PathElement{}, err
		}
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
		if p.take(",") {
			continue
		}
		key.Sort()
		if i := slices.IndexFunc(key[1:], func(f value.Field) bool { return f.Name == key[0].Name }); i >= 0 {
			return fieldpath.PathElement{}, fmt.Errorf("the key %s is given twice", key[0].Name)
		}
		return fieldpath.PathElement{Key: &key}, nil
	}
}

func (p *pathParser) keyName(quoted bool) (string, error) {
	if !quoted {
		return p.name()
	}
	v, err := p.json()
	name, _ := v.(string)
	return name, err
}

// name reads a field's name that needs no quotes.
func (p *pathParser) name() (string, error) {
	end := strings.IndexAny(p.rest, ".[]=,")
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	if name == "" {
		return "", errors.New("want a name here, as in .spec.replicas")
	}
	if !plain(name) {
		return "", fmt.Errorf("the name %q needs brackets and quotes, as in .metadata.annotations[\"example.com/owner\"]", name)
	}
	p.rest = p.rest[end:]
	return name, nil
}

// json reads a JSON scalar: keys and elements of sets are nothing else.
func (p *pathParser) json() (any, error) {
	decoder := json.NewDecoder(strings.NewReader(p.rest))
	decoder.UseNumber()
	var v any
	err := decoder.Decode(&v)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("want a JSON value here, as in [name=\"main\"]")
	}
	if err != nil {
		return nil, fmt.Errorf("want a JSON value here, as in [name=\"main\"]: %w", err)
	}
	switch number := v.(type) {
	case map[string]any, []any:
		return nil, errors.New("want a string, a number, true, false or null here")
	case json.Number:
		if v, err = decodeNumber(number); err != nil {
			return nil, err
		}
	}
	p.rest = p.rest[decoder.InputOffset():]
	return v, nil
}

func (p *pathParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

// decodeNumber returns an int64 where a number is whole, as Kubernetes decodes
// it, else a float64.
func decodeNumber(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	return n.Float64()
}
