package adminapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// MaxLimit is how many items of a list one answer has at most.
const MaxLimit = 1000

// Query reads the parameters of a URL. Its methods collect the errors, which Err returns.
type Query struct {
	values url.Values
	known  []string
	fields []starbase.FieldError
}

// NewQuery returns the query of the request.
func NewQuery(r *http.Request) *Query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &Query{values: values}
	if err != nil {
		q.Wrong("query", fmt.Sprintf("%.80q", r.URL.RawQuery), "name=value pairs with & between, percent-encoded")
	}
	return q
}

// Wrong notes that a parameter is.
func (q *Query) Wrong(name, value, want string) {
	q.fields = append(q.fields, starbase.FieldError{Field: name, Value: value, Want: want})
}

// raw returns the value of a parameter, which may be there once.
func (q *Query) raw(name string) (value string, ok bool) {
	q.known = append(q.known, name)
	switch list := q.values[name]; len(list) {
	case 0:
		return "", false
	case 1:
		return list[0], true
	default:
		q.Wrong(name, fmt.Sprintf("%d values", len(list)), "one value")
		return "", false
	}
}

// Text returns a parameter that must match; empty without it.
func (q *Query) Text(name string, pattern *regexp.Regexp, want string) string {
	value, ok := q.raw(name)
	if !ok {
		return ""
	}
	if !pattern.MatchString(value) {
		q.Wrong(name, fmt.Sprintf("%.80q", value), want)
		return ""
	}
	return value
}

// Int returns a parameter between least and most, or initial without it.
func (q *Query) Int(name string, initial, least, most int) int {
	value, ok := q.raw(name)
	if !ok {
		return initial
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		q.Wrong(name, fmt.Sprintf("%.80q", value), fmt.Sprintf("%d to %d", least, most))
		return initial
	}
	return n
}

// Time returns a parameter that is a time of RFC 3339; zero without it.
func (q *Query) Time(name string) time.Time {
	value, ok := q.raw(name)
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		q.Wrong(name, fmt.Sprintf("%.80q", value), "a time of RFC 3339, like 2026-01-31T12:00:00Z, with + as %2B")
	}
	return at
}

// Bool returns a parameter that is true or false; false without it.
func (q *Query) Bool(name string) bool {
	value, ok := q.raw(name)
	if ok && value != "true" && value != "false" {
		q.Wrong(name, fmt.Sprintf("%.80q", value), "true or false")
	}
	return value == "true"
}

// Err returns the errors, with one for each parameter that was not read; nil if there are
// none. Call it last.
func (q *Query) Err() error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(q.known, name) {
			want := "no such parameter"
			if len(q.known) > 0 {
				want += ": there are " + strings.Join(q.known, ", ")
			}
			q.Wrong(fmt.Sprintf("%.80s", strings.ToValidUTF8(name, "\uFFFD")), "", want)
		}
	}
	if len(q.fields) > 0 {
		return Invalid(q.fields...)
	}
	return nil
}

// keyPattern is what a key of a list may be. That of a region may have @ and the platform at its end.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./@-]{0,199}$`)

// WritePart answers with a part of a list under its name, and with next, the key of its
// last item, if more follow. The query says which part: after, the next of the answer
// before, and limit, at most and by default [MaxLimit]. read returns the items whose keys
// follow the given one, in the order of the keys, at most limit.
func WritePart[T any](ctx context.Context, w http.ResponseWriter, query *Query, name string, key func(*T) string,
	read func(ctx context.Context, after string, limit int) ([]T, error),
) error {
	after, limit := query.Text("after", keyPattern, "the next of an answer before"), query.Int("limit", MaxLimit, 1, MaxLimit)
	if err := query.Err(); err != nil {
		return err
	}
	list, err := read(ctx, after, limit+1)
	if err != nil {
		return err
	}
	if list == nil {
		list = []T{}
	}
	body := map[string]any{name: list}
	if len(list) > limit {
		body[name], body["next"] = list[:limit], key(&list[limit-1])
	}
	return WriteJSON(w, http.StatusOK, body)
}
