package remote

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// taken returns a body without the members that get prints and the API does not take, so that what was printed can
// be changed and put. One that names another object, or one that is deleted, is an error.
func (k kind) taken(body json.RawMessage, words []string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if len(k.printed) == 0 || json.Unmarshal(body, &members) != nil {
		return body, nil //nolint:nilerr // the server says what is wrong with it
	}
	dropped := false
	for _, name := range k.printed {
		value, ok := members[name]
		if !ok {
			continue
		}
		if i := slices.Index(k.words, strings.ToUpper(name)); i >= 0 && string(value) != fmt.Sprintf("%q", words[i]) {
			return nil, program.Usagef("%s: is %s, must be %q as in the command, or left out", name, program.Shown(string(value)), words[i])
		}
		if name == "deleted" && string(value) == "true" {
			return nil, program.Usagef("deleted: is true, must be false, or left out: a put creates the %s again", k.name)
		}
		delete(members, name)
		dropped = true
	}
	if !dropped {
		return body, nil // with what is there twice, which the server refuses
	}
	return json.Marshal(members)
}
