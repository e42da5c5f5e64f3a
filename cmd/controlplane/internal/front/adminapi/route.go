package adminapi

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// Actions that two people may be needed for.
const (
	ActionApprove = "allow-mass-delete"
	ActionEpoch   = "new-epoch"
	ActionAbandon = "abandon"
)

// Waiting is the answer to the first of two people.
type Waiting struct {
	Action string `json:"action"`
	// First is the actor of the first request.
	First string `json:"first"`
	// Until is when the request is forgotten.
	Until time.Time `json:"until"`
	// Message is one sentence for people.
	Message string `json:"message"`
}

// Agreement reports whether a request may be carried out now, whose path, query and body are
// right. If it may not, it has answered that a second person is needed, or returns why the
// request is refused.
type Agreement func(w http.ResponseWriter, r *http.Request, body any) (bool, error)

type agreementKey struct{}

// NeedAgreement returns a context in which a route of two people asks for agreement.
func NeedAgreement(ctx context.Context, agree Agreement) context.Context {
	return context.WithValue(ctx, agreementKey{}, agree)
}

// agreed asks for the agreement of the context, if it has one.
func agreed(w http.ResponseWriter, r *http.Request, body any) (bool, error) {
	if agree, ok := r.Context().Value(agreementKey{}).(Agreement); ok {
		return agree(w, r, body)
	}
	return true, nil
}

// PostByTwo is [Post] for an action that two people may be needed for. The first of them gets
// the error of check, if it has one: both would ask for nothing.
func PostByTwo[K, B, A any](path, action string, of Path[K], check func(ctx context.Context, key K, body B) error,
	act func(ctx context.Context, key K, body B) (A, error),
) Route {
	route := Post(path, of, act)
	route.Handle = func(w http.ResponseWriter, r *http.Request) error {
		key, body, err := read[K, B](w, r, of, decodeOptional)
		if err == nil {
			err = check(r.Context(), key, body)
		}
		if err != nil {
			return err
		}
		if ok, err := agreed(w, r, body); err != nil || !ok {
			return err
		}
		return writeResult(w, http.StatusOK)(act(r.Context(), key, body))
	}
	return route.byTwo(action)
}

// byTwo returns the route as one that two people may be needed for.
func (r Route) byTwo(action string) Route {
	r.Operation.Action = action
	answers := maps.Clone(r.Operation.Answers)
	answers[http.StatusAccepted] = Waiting{}
	r.Operation.Answers = answers
	return r.Refuses(http.StatusConflict, "same_person").Refuses(http.StatusForbidden, "nameless_token")
}

// Right is what an administrator needs for a request.
type Right string

// The rights.
const (
	// RightRead allows reading.
	RightRead Right = "read"
	// RightOperate allows changing what runs in a project or region.
	RightOperate Right = "operate"
	// RightAdminister allows everything else.
	RightAdminister Right = "administer"
)

// Route is one method of one path.
type Route struct {
	// Method and Path are a pattern of [http.ServeMux], Path the part without the method.
	Method, Path string
	// Handle answers.
	Handle Handler
	// Operation is what the API reference says of the route.
	Operation Operation
}

// Operation describes a route in the API reference. The values in it are there for their
// types.
type Operation struct {
	// Name is the operationId, and Summary one sentence.
	Name, Summary string
	// Query are the parameters of the URL.
	Query []Parameter
	// Body is a value of the type of the request's body. Nil: there is none.
	Body any
	// BodyOptional is true if the body may be left out.
	BodyOptional bool
	// Answers has for each status of success a value of the type of the answer's body. Nil:
	// it has none.
	Answers map[int]any
	// Action is what two people may be needed for. Empty: they never are.
	Action string
	// Right is what an administrator needs. Empty: [RightRead] for GET, and
	// [RightAdminister] else.
	Right Right
	// Errors has the codes of the errors that not all routes have, by status.
	Errors map[int][]string
}

// Parameter is one parameter of a URL.
type Parameter struct {
	Name, Description string
	// Schema is its JSON schema.
	Schema map[string]any
}

// Part is the type of the body of a list: some items, sorted by their keys.
type Part struct {
	// Name is the member that has the items, and Item a value of their type.
	Name string
	Item any
}

// Named returns the route with the name and summary of its operation.
func (r Route) Named(name, summary string) Route {
	r.Operation.Name, r.Operation.Summary = name, summary
	return r
}

// Operated returns the route as one that operators have a right to, each in its projects and
// regions, if it changes something.
func (r Route) Operated() Route {
	if r.Method != http.MethodGet {
		r.Operation.Right = RightOperate
	}
	return r
}

// Needs returns what an administrator needs for the route.
func (r Route) Needs() Right {
	if r.Method == http.MethodGet {
		return cmp.Or(r.Operation.Right, RightRead)
	}
	return cmp.Or(r.Operation.Right, RightAdminister)
}

// Refuses returns the route with another code of an error that it may answer.
func (r Route) Refuses(status int, codes ...string) Route {
	all := map[int][]string{status: codes}
	for s, c := range r.Operation.Errors {
		all[s] = append(c, all[s]...)
	}
	r.Operation.Errors = all
	return r
}

// Path reads the object that the path of a request names, or returns why the path is wrong.
type Path[K any] func(r *http.Request) (K, error)

// Everything is the [Path] of routes that name no object.
func Everything(*http.Request) (struct{}, error) { return struct{}{}, nil }

// Get returns the route that shows an object.
func Get[K, A any](path string, of Path[K], read func(ctx context.Context, key K) (A, error)) Route {
	return Route{
		Method: http.MethodGet, Path: path,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			key, err := of(r)
			if err != nil {
				return err
			}
			if err := NewQuery(r).Err(); err != nil {
				return err
			}
			return writeResult(w, http.StatusOK)(read(r.Context(), key))
		},
		Operation: Operation{Answers: map[int]any{http.StatusOK: *new(A)}},
	}
}

// List returns the route that lists a part of the items below an object; see [WritePart].
func List[K, T any](path, name string, of Path[K], key func(*T) string,
	read func(ctx context.Context, of K, after string, limit int) ([]T, error),
) Route {
	return Route{
		Method: http.MethodGet, Path: path,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			object, err := of(r)
			if err != nil {
				return err
			}
			return WritePart(r.Context(), w, NewQuery(r), name, key, func(ctx context.Context, after string, limit int) ([]T, error) {
				return read(ctx, object, after, limit)
			})
		},
		Operation: ListOperation(name, *new(T)),
	}
}

// ListOperation describes a route that answers with [WritePart].
func ListOperation(name string, item any, more ...Parameter) Operation {
	return Operation{
		Query: append(more,
			Parameter{
				Name: "after", Description: "The `next` of the answer before.",
				Schema: map[string]any{"type": "string", "pattern": keyPattern.String()},
			},
			Parameter{
				Name: "limit", Description: "How many items the answer has at most.",
				Schema: map[string]any{"type": "integer", "minimum": 1, "maximum": MaxLimit, "default": MaxLimit},
			},
		),
		Answers: map[int]any{http.StatusOK: Part{Name: name, Item: item}},
	}
}

// Set returns the route that changes an object that is there.
func Set[K, B, A any](path string, of Path[K], set func(ctx context.Context, key K, body B) (A, error)) Route {
	return change(http.MethodPut, path, of, decodeStrict, set)
}

// Post returns the route of an action on an object. Its body may be left out if the zero
// value of B is right.
func Post[K, B, A any](path string, of Path[K], act func(ctx context.Context, key K, body B) (A, error)) Route {
	route := change(http.MethodPost, path, of, decodeOptional, act)
	route.Operation.BodyOptional = len(wrong(*new(B))) == 0
	return route
}

func change[K, B, A any](method, path string, of Path[K], decode func(http.ResponseWriter, *http.Request, any) error,
	do func(ctx context.Context, key K, body B) (A, error),
) Route {
	return Route{
		Method: method, Path: path,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			key, body, err := read[K, B](w, r, of, decode)
			if err != nil {
				return err
			}
			return writeResult(w, http.StatusOK)(do(r.Context(), key, body))
		},
		Operation: Operation{Body: *new(B), Answers: map[int]any{http.StatusOK: *new(A)}},
	}
}

// Put returns the route that creates an object, or changes one that is there: put reports
// whether it is new.
func Put[K, B, A any](path string, of Path[K], put func(ctx context.Context, key K, body B) (answer A, created bool, err error)) Route {
	return Route{
		Method: http.MethodPut, Path: path,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			key, body, err := read[K, B](w, r, of, decodeStrict)
			if err != nil {
				return err
			}
			answer, created, err := put(r.Context(), key, body)
			status := http.StatusOK
			if created {
				status = http.StatusCreated
			}
			return writeResult(w, status)(answer, err)
		},
		Operation: Operation{Body: *new(B), Answers: map[int]any{http.StatusOK: *new(A), http.StatusCreated: *new(A)}},
	}
}

func decodeStrict(w http.ResponseWriter, r *http.Request, target any) error {
	return Decode(w, r, target, true)
}

func read[K, B any](w http.ResponseWriter, r *http.Request, of Path[K],
	decode func(http.ResponseWriter, *http.Request, any) error,
) (key K, body B, err error) {
	if key, err = of(r); err != nil {
		return key, body, err
	}
	if err = NewQuery(r).Err(); err != nil {
		return key, body, err
	}
	if err = decode(w, r, &body); err != nil {
		return key, body, err
	}
	if fields := wrong(body); len(fields) > 0 {
		return key, body, Invalid(fields...)
	}
	return key, body, nil
}

// wrong returns the invalid fields of a body that knows them.
func wrong(body any) []starbase.FieldError {
	if b, ok := body.(interface{ Wrong() []starbase.FieldError }); ok {
		return b.Wrong()
	}
	return nil
}

// Delete returns the route that marks an object as deleted.
func Delete[K, A any](path string, of Path[K], remove func(ctx context.Context, key K) (A, error)) Route {
	route := Get(path, of, remove)
	route.Method = http.MethodDelete
	return route
}

// Remove returns the route that removes an object, or gives it up with ?abandon=true, which
// two people may be needed for. check returns why there is nothing to remove.
func Remove(path string, of Path[string], check func(ctx context.Context, id string) error,
	remove func(ctx context.Context, id string, abandon bool) error,
) Route {
	route := Route{
		Method: http.MethodDelete, Path: path,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			id, err := of(r)
			if err != nil {
				return err
			}
			query := NewQuery(r)
			abandon := query.Bool("abandon")
			if err := query.Err(); err != nil {
				return err
			}
			if abandon {
				if err := check(r.Context(), id); err != nil {
					return err
				}
				if ok, err := agreed(w, r, nil); err != nil || !ok {
					return err
				}
			}
			if err := remove(r.Context(), id, abandon); err != nil {
				return err
			}
			w.WriteHeader(http.StatusNoContent)
			return nil
		},
		Operation: Operation{
			Query: []Parameter{{
				Name: "abandon", Description: "Remove it although it is not empty: what its agent has made stays where it is.",
				Schema: map[string]any{"type": "boolean", "default": false},
			}},
			Answers: map[int]any{http.StatusNoContent: nil},
		},
	}
	return route.Refuses(http.StatusConflict, "not_empty", "alive").byTwo(ActionAbandon)
}

// writeResult returns what answers with a value, or returns the error that came instead.
func writeResult(w http.ResponseWriter, status int) func(value any, err error) error {
	return func(value any, err error) error {
		if err != nil {
			return err
		}
		return WriteJSON(w, status, value)
	}
}

// Rotation is the optional body of an action that makes another token.
type Rotation struct {
	// OverlapSeconds is how long the token of before stays valid at most, 0 to 604800, 7 days.
	OverlapSeconds int64 `json:"overlap_seconds,omitempty"`
}

// Wrong returns the invalid fields.
func (r Rotation) Wrong() (fields []starbase.FieldError) {
	if r.OverlapSeconds < 0 || r.OverlapSeconds > int64(MaxOverlap.Seconds()) {
		value := strconv.FormatInt(r.OverlapSeconds, 10)
		fields = append(fields, starbase.FieldError{Field: "overlap_seconds", Value: value, Want: "0 to 604800"})
	}
	return fields
}

// Overlap is OverlapSeconds.
func (r Rotation) Overlap() time.Duration { return time.Duration(r.OverlapSeconds) * time.Second }
