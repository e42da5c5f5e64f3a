package starbase

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// errNotObject reports a JSON value that is no object at the outermost level.
var errNotObject = errors.New("the body is not a JSON object")

// parseObject returns the members of the one JSON object in body. It refuses
// anything before or after the object, and an object anywhere inside that has
// the same key twice: readers disagree about which of the two counts.
func parseObject(body []byte) (map[string]any, error) {
	// Unmarshal checks the grammar of the whole body, and its depth, before
	// the tree is built.
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	value, err := parseValue(decoder)
	if err != nil {
		return nil, err
	}
	members, ok := value.(map[string]any)
	if !ok {
		return nil, errNotObject
	}
	return members, nil
}

func parseValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return parseMembers(decoder)
	case json.Delim('['):
		list := []any{}
		for decoder.More() {
			item, err := parseValue(decoder)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err := decoder.Token()
		return list, err
	default:
		return token, nil
	}
}

func parseMembers(decoder *json.Decoder) (map[string]any, error) {
	members := map[string]any{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("object key at byte %d is not a string", decoder.InputOffset())
		}
		if _, again := members[key]; again {
			return nil, fmt.Errorf("the key %q appears twice in one object, at byte %d", key, decoder.InputOffset())
		}
		if members[key], err = parseValue(decoder); err != nil {
			return nil, err
		}
	}
	_, err := decoder.Token()
	return members, err
}

// digestOf returns the digest over the four members that it covers.
func digestOf(members map[string]any) (string, error) {
	covered := map[string]any{
		"cluster_config": members["cluster_config"],
		"projects":       members["projects"],
		"services":       members["services"],
		"var_groups":     members["var_groups"],
	}
	for name, value := range covered {
		switch {
		case value != nil:
		case name == "cluster_config":
			covered[name] = map[string]any{}
		default:
			covered[name] = []any{}
		}
	}
	var canonical bytes.Buffer
	encoder := json.NewEncoder(&canonical) // sorts the keys of maps
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(covered); err != nil {
		return "", fmt.Errorf("canonical JSON: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(canonical.Bytes(), []byte("\n")))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
