package storage

//trueup:pure

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// State is how a bucket is. Of one that is of another, only the mark is read.
type State struct {
	Exists bool
	// Mark is the text of its mark, and Tags are all its other tags.
	Mark string
	Tags map[string]string
	// Policy is the document, empty if there is none.
	Policy string
	// Blocked is whether a public policy would be refused.
	Blocked bool
	// CORS are the rules, NoCORS is whether the service has none.
	CORS   []Rule
	NoCORS bool
}

// Rule is a rule of CORS.
type Rule struct {
	Methods, Origins, Headers []string
	MaxAge                    int32
}

// Action is one write.
type Action string

// The actions.
const (
	Create       Action = "create"
	Mark         Action = "mark"
	Unblock      Action = "allow a public policy"
	PutPolicy    Action = "write the policy"
	DeletePolicy Action = "delete the policy"
	PutCORS      Action = "write CORS"
	DeleteCORS   Action = "delete CORS"
)

// publicRead names the statement of the policy that is the operator's.
const publicRead = "PlattrPublicRead"

// Plan returns the actions that make a bucket as it is wanted, in their order: none if it
// is. The error wraps [external.ErrOwnedByOther] if it is of another.
func Plan(state State, want Want) ([]Action, error) {
	var actions []Action
	switch {
	case !state.Exists:
		actions = append(actions, Create)
	case want.Mark.Claim(state.Mark) == external.Foreign:
		return nil, external.Owned("bucket "+want.Name, state.Mark)
	case state.Mark != want.Mark.String():
		actions = append(actions, Mark)
	}
	switch {
	case want.Public && !sameJSON(state.Policy, policy(want.Name)):
		if state.Blocked {
			actions = append(actions, Unblock)
		}
		actions = append(actions, PutPolicy)
	case !want.Public && isPublicRead(state.Policy):
		actions = append(actions, DeletePolicy)
	}
	switch wanted := rules(want); {
	case state.NoCORS || equal(state.CORS, wanted):
	case len(wanted) == 0:
		actions = append(actions, DeleteCORS)
	default:
		actions = append(actions, PutCORS)
	}
	return actions, nil
}

// policy returns the document that lets anyone read the objects.
func policy(bucket string) string {
	return fmt.Sprintf(
		`{"Version":"2012-10-17","Statement":[{"Sid":%q,"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*"}]}`,
		publicRead,
		bucket,
	)
}

// isPublicRead reports whether a document has the operator's statement.
func isPublicRead(document string) bool {
	var p struct{ Statement []struct{ Sid string } }
	if json.Unmarshal([]byte(document), &p) != nil {
		return false
	}
	return slices.ContainsFunc(p.Statement, func(s struct{ Sid string }) bool { return s.Sid == publicRead })
}

// sameJSON reports whether two documents mean the same. A list of one element and the
// element are the same, as services write either.
func sameJSON(a, b string) bool {
	canonical := func(text string) string {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return ""
		}
		out, err := json.Marshal(flat(v))
		if err != nil {
			return ""
		}
		return string(out)
	}
	return canonical(a) != "" && canonical(a) == canonical(b)
}

func flat(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = flat(v[i])
		}
		if len(v) == 1 {
			return v[0]
		}
	case map[string]any:
		if all, ok := v["AWS"]; ok && len(v) == 1 && flat(all) == "*" {
			return "*" // {"AWS":"*"} is anyone, as "*" is
		}
		for key := range v {
			v[key] = flat(v[key])
		}
	}
	return v
}

// rules returns the CORS rules, in the order that equal compares.
func rules(want Want) []Rule {
	if len(want.Origins) == 0 {
		return nil
	}
	origins := slices.Clone(want.Origins)
	slices.Sort(origins)
	return []Rule{{Methods: []string{"DELETE", "GET", "POST", "PUT"}, Origins: slices.Compact(origins), Headers: []string{"*"}, MaxAge: 3600}}
}

func equal(a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(a, b Rule) bool {
		same := func(a, b []string) bool {
			a, b = slices.Clone(a), slices.Clone(b)
			slices.Sort(a)
			slices.Sort(b)
			return slices.Equal(a, b)
		}
		return same(a.Methods, b.Methods) && same(a.Origins, b.Origins) && same(a.Headers, b.Headers) && a.MaxAge == b.MaxAge
	})
}
