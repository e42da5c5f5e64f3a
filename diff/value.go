package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is a JSON value in its compact form with sorted keys. It is empty where
// a field is absent, which is not the same as null. Values are comparable.
//
// As JSON it is the value itself.
type Value string

// Masked stands for a value that must not be shown.
const Masked Value = `"(masked)"`

// valueOf returns the form of a decoded JSON value.
func valueOf(v any) Value {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		// No decoded JSON value comes here; what else does is shown as a string.
		return valueOf("(" + err.Error() + ")")
	}
	return Value(strings.TrimSuffix(buf.String(), "\n"))
}

// MarshalJSON returns the value; null where it is absent.
func (v Value) MarshalJSON() ([]byte, error) {
	if v == "" {
		return []byte("null"), nil
	}
	return []byte(v), nil
}

// UnmarshalJSON keeps the compact form of data.
func (v *Value) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return err
	}
	*v = valueOf(decoded)
	return nil
}

// maxShown is how much of a value is shown on a line, in bytes.
const maxShown = 160

// String returns the value for people, on one line: cut when it is long, and without
// terminal control characters.
func (v Value) String() string {
	if v == "" {
		return "(absent)"
	}
	text := string(v)
	if len(text) > maxShown {
		end := maxShown
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	return printable(text)
}

// printable writes terminal control characters as JSON escapes.
func printable(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }
