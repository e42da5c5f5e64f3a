package main

import (
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// outcomes are what a command did, for programs.
type outcomes struct {
	Results []outcome `json:"results"`
	Held    *held     `json:"held,omitempty"` // nil: nothing
	// Pending counts what another call deletes, once what needs it is gone.
	Pending int `json:"pending,omitempty"`
}

// outcome is what happened to one object.
type outcome struct {
	ID     string       `json:"id"`
	Action apply.Action `json:"action"`
	Error  string       `json:"error,omitempty"`
}

// held are deletions that wait for an approval: of the digest, or, without one, by --yes.
type held struct {
	Digest  string   `json:"digest,omitempty"`
	Objects []string `json:"objects"`
}

func (s *session) hold(digest string, ids []apply.ID) {
	s.outcomes.Held = &held{Digest: digest}
	for _, id := range ids {
		s.outcomes.Held.Objects = append(s.outcomes.Held.Objects, id.String())
	}
}

// report keeps the results for print, and prints their count for people.
func (s *session) report(results []apply.Result) {
	counts := map[apply.Action]int{}
	for _, r := range results {
		if r.ID == s.owner.ApplySet {
			continue
		}
		o := outcome{ID: r.ID.String(), Action: r.Action}
		if r.Err != nil {
			o.Error = r.Err.Error()
		}
		s.outcomes.Results = append(s.outcomes.Results, o)
		counts[r.Action]++
	}
	var text []string
	for _, action := range []apply.Action{
		apply.Created, apply.Updated, apply.Recreated, apply.Deleted, apply.Released, apply.Refused, apply.Failed,
	} {
		if counts[action] > 0 {
			text = append(text, fmt.Sprintf("%d %s", counts[action], strings.ToLower(string(action))))
		}
	}
	if len(text) > 0 {
		s.options.out.Printf("%s: %s\n", s.options.part, strings.Join(text, ", "))
	}
}

// ended prints what the command did, for programs as one document, and returns the error with
// the status.
func (s *session) ended(err error) error {
	var names []string
	for _, o := range s.outcomes.Results {
		names = append(names, o.ID)
	}
	waiting := 0
	if s.outcomes.Held != nil {
		waiting = len(s.outcomes.Held.Objects)
	}
	s.options.out.Value(s.outcomes, names)
	return s.options.ended(s.faults, err, waiting)
}
