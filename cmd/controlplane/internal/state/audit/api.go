package audit

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// Path is where the entries are read.
const Path = adminapi.Prefix + "audit"

// defaultLimit is how many entries an answer has at most, unless it is asked for another
// number.
const defaultLimit = 100

// all chooses the entries of all logs.
const all = "all"

var (
	actorPattern = regexp.MustCompile(
		`^(controlplane|shared-agent-token|stranger|` +
			`(admin|cluster|region|command)(/[A-Za-z0-9][A-Za-z0-9_.-]{0,99})?|oidc(/[^\x00-\x1F]{1,63})?)$`,
	)
	objectPattern = regexp.MustCompile(`^[a-z-]{1,20}(/[A-Za-z0-9][A-Za-z0-9_./-]{0,299})?$`)
	logPattern    = regexp.MustCompile(`^(` + strings.Join(append(Logs(), all), "|") + `)$`)
	idPattern     = regexp.MustCompile(`^[0-9a-f]{24}$`)
)

// Routes returns the endpoint that lists the entries.
func Routes(log *Log) []adminapi.Route {
	text := func(name, description string, pattern *regexp.Regexp) adminapi.Parameter {
		return adminapi.Parameter{Name: name, Description: description, Schema: map[string]any{"type": "string", "pattern": pattern.String()}}
	}
	return []adminapi.Route{{
		Method: http.MethodGet, Path: Path, Handle: log.list,
		Operation: adminapi.Operation{
			Name: "listAudit", Summary: "List who changed what, newest first.",
			Query: []adminapi.Parameter{
				text("object", "A kind of object, or one object: its kind, / and its name.", objectPattern),
				text("actor", "Who did it, or the kind of it, such as admin or cluster.", actorPattern),
				text("log", "One of the logs. Without it and actor: changes.", logPattern),
				{Name: "since", Description: "Not before this time.", Schema: map[string]any{"type": "string", "format": "date-time"}},
				text("before", "The `next` of the answer before.", idPattern),
				{
					Name: "limit", Description: "How many entries the answer has at most.",
					Schema: map[string]any{"type": "integer", "minimum": 1, "maximum": adminapi.MaxLimit, "default": defaultLimit},
				},
			},
			Answers: map[int]any{http.StatusOK: answer{}},
		},
	}}
}

// answer is the body of the list.
type answer struct {
	Entries []Entry `json:"entries"`
	// Next is the value of before for the entries that follow. Empty: there are none.
	Next string `json:"next,omitempty"`
}

func (l *Log) list(w http.ResponseWriter, r *http.Request) error {
	query := adminapi.NewQuery(r)
	object := query.Text(
		"object",
		objectPattern,
		"the kind of an object, or its kind, / and its name: cluster, or service/<project id>/production/<service id>",
	)
	f := Filter{
		Actor: query.Text(
			"actor",
			actorPattern,
			"controlplane, shared-agent-token, stranger, or admin, oidc, cluster, region or command, "+
				"alone or followed by / and a name, like admin/1a2b3c4d",
		),
		Since:  query.Time("since"),
		Before: query.Text("before", idPattern, "the next of an answer before, 24 hexadecimal digits"),
	}
	f.Log = query.Text("log", logPattern, strings.Join(Logs(), ", ")+" or "+all)
	switch {
	case f.Log == all:
		f.Log = ""
	case f.Log == "" && f.Actor == "":
		f.Log = Changes
	}
	f.Kind, f.Name, _ = strings.Cut(object, "/")
	if object != "" && !slices.Contains(Kinds(), f.Kind) {
		query.Wrong("object", fmt.Sprintf("%.80q", object), "begin with one of "+strings.Join(Kinds(), ", "))
	}
	limit := query.Int("limit", defaultLimit, 1, adminapi.MaxLimit)
	if err := query.Err(); err != nil {
		return err
	}
	entries, more, err := l.List(r.Context(), f, limit)
	if err != nil {
		return err
	}
	body := answer{Entries: entries}
	if body.Entries == nil {
		body.Entries = []Entry{}
	}
	if more {
		body.Next = entries[len(entries)-1].ID
	}
	return adminapi.WriteJSON(w, http.StatusOK, body)
}
