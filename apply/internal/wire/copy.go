//trueup:pure

package wire

import (
	"encoding/json"
	"math"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Copy returns the object as it is after it was written as JSON and read again by the API
// machinery: with its own maps and lists, and whole numbers as int64. What JSON cannot hold is an
// error. What decoded objects consist of is copied in place; anything else goes through JSON.
func Copy(object map[string]any) (map[string]any, error) {
	copied, err := copyValue(object)
	if err != nil {
		return nil, err
	}
	m, _ := copied.(map[string]any) // nil for nil
	return m, nil
}

func copyValue(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, int64:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case string:
		if utf8.ValidString(v) {
			return v, nil
		}
	case float64:
		// A whole number is read as int64, and the largest ones are not exact.
		if v != math.Trunc(v) && !math.IsNaN(v) {
			return v, nil
		}
	case map[string]any:
		if v != nil {
			return copyMap(v)
		}
		return nil, nil //nolint:nilnil // JSON's null
	case []any:
		if v != nil {
			return copyList(v)
		}
		return nil, nil //nolint:nilnil // as above
	}
	return throughJSON(value)
}

func copyMap(from map[string]any) (any, error) {
	to := make(map[string]any, len(from))
	for key, value := range from {
		if !utf8.ValidString(key) { // two of these may become one
			return throughJSON(from)
		}
		copied, err := copyValue(value)
		if err != nil {
			return nil, err
		}
		to[key] = copied
	}
	return to, nil
}

func copyList(from []any) (any, error) {
	to := make([]any, len(from))
	for i, value := range from {
		copied, err := copyValue(value)
		if err != nil {
			return nil, err
		}
		to[i] = copied
	}
	return to, nil
}

func throughJSON(value any) (copied any, err error) {
	data, err := json.Marshal(value)
	if err == nil {
		err = utiljson.Unmarshal(data, &copied)
	}
	return copied, err
}
