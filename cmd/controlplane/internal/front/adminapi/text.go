package adminapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// checkText returns the answer to a body with text that is none, nil for any other body.
func checkText(body []byte) error {
	at := badText(body)
	if at < 0 {
		return nil
	}
	field := fieldAt(body, at)
	if field == "" {
		return malformed(fmt.Sprintf("the body is not UTF-8 at byte %d", at))
	}
	return Invalid(
		starbase.FieldError{Field: field, Want: fmt.Sprintf("text in UTF-8, with whole surrogate pairs; it is wrong at byte %d of the body", at)},
	)
}

// badText returns the offset of the first byte that is not UTF-8, or of the first escape
// of half a surrogate pair; -1 for none.
func badText(body []byte) int {
	for at := 0; at < len(body); {
		if body[at] == '\\' && at+1 < len(body) {
			size := escape(body[at:])
			if size < 0 {
				return at
			}
			at += size
			continue
		}
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// escape returns how long the escape is that text begins with, a pair of surrogates being
// one; -1 for half of a pair.
func escape(text []byte) int {
	const one, pair = len(`\u0000`), len(`\u0000\u0000`)
	first, ok := unit(text)
	switch {
	case !ok:
		return 2
	case !utf16.IsSurrogate(first):
		return one
	}
	second, ok := unit(text[one:])
	if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
		return -1
	}
	return pair
}

// unit returns the UTF-16 unit of the escape that text begins with.
func unit(text []byte) (r rune, ok bool) {
	const size = len(`\u0000`)
	if len(text) < size || !bytes.HasPrefix(text, []byte(`\u`)) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:size]), 16, 16)
	return rune(n), err == nil //nolint:gosec // 16 bits
}

// fieldAt returns the path of the field whose name or value has the byte at that offset;
// empty if the body cannot be read up to there.
func fieldAt(body []byte, at int) string {
	type level struct {
		list  bool
		index int
		name  string
		named bool
	}
	var path []level
	text := func() string {
		var parts strings.Builder
		for _, l := range path {
			switch {
			case l.list:
				fmt.Fprintf(&parts, "[%d]", l.index)
			case parts.Len() > 0:
				parts.WriteString("." + l.name)
			default:
				parts.WriteString(l.name)
			}
		}
		return parts.String()
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		// A name stands in its object, a value at its name or index.
		var top *level
		if len(path) > 0 {
			top = &path[len(path)-1]
		}
		isName := false
		if name, ok := token.(string); ok && top != nil && !top.list && !top.named {
			top.name, top.named, isName = fmt.Sprintf("%.80s", name), true, true
		}
		if decoder.InputOffset() > int64(at) {
			return text()
		}
		delim, isDelim := token.(json.Delim)
		switch {
		case isName:
			continue
		case isDelim && (delim == '{' || delim == '['):
			path = append(path, level{list: delim == '['})
			continue
		case isDelim:
			path = path[:len(path)-1]
		}
		// A value has ended.
		if len(path) > 0 {
			top := &path[len(path)-1]
			top.index++
			top.named = false
		}
	}
}
