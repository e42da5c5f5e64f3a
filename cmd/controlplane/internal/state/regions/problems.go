package regions

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// Problem is one thing that the agent of a region cannot do, and will not by itself.
type Problem struct {
	// Resource is collection/namespace/name, or a collection.
	Resource string `json:"resource"`
	// Message is why it is not done.
	Message string `json:"message"`
}

// The limits of the problems of a heartbeat.
const (
	maxProblems       = 100
	maxProblemMessage = 1024
)

// problemsOf returns the problems of a heartbeat as they are stored, "" for none.
func problemsOf(list []*ctrlv1.Problem) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	if len(list) > maxProblems {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("problems: are %d, must be %d at most", len(list), maxProblems))
	}
	problems := make([]Problem, len(list))
	for i, p := range list {
		problems[i] = Problem{Resource: p.GetResource(), Message: p.GetMessage()}
		field := fmt.Sprintf("problems[%d].", i)
		wrong := plain(field+"resource", p.GetResource())
		switch m := p.GetMessage(); {
		case wrong != nil:
		case p.GetResource() == "":
			wrong = errors.New(field + "resource: is required")
		case len(m) > maxProblemMessage:
			wrong = fmt.Errorf("%smessage: has %d bytes, must have %d at most", field, len(m), maxProblemMessage)
		case !utf8.ValidString(m) || strings.ContainsRune(m, 0):
			wrong = errors.New(field + "message: must be UTF-8 without the character 0")
		}
		if wrong != nil {
			return "", connect.NewError(connect.CodeInvalidArgument, wrong)
		}
	}
	text, err := json.Marshal(problems)
	return string(text), err
}

// parseProblems reads what problemsOf has written.
func parseProblems(text string) (problems []Problem, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &problems); err != nil {
		return nil, fmt.Errorf("problems: %w", err)
	}
	return problems, nil
}
