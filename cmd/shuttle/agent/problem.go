package agent

import (
	"errors"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// problem is why the configuration of the cluster, or a newer state, is not in effect, or why what is
// reported may be old; zero for none.
type problem struct{ class, message string }

// part is a part of the agent that has a problem of the whole cluster.
type part int

// The parts, the worst problem first.
const (
	ofState     part = iota // the desired state is not accepted
	ofView                  // the cluster cannot be seen
	ofDeletions             // deletions are held, and no approval ends that
	ofProjects              // an object of a deleted project cannot be deleted
	ofGateway
	parts
)

// together makes one problem of all: the class of the worst, and the messages of each.
func together(all *[parts]problem) (worst problem) {
	for _, p := range all {
		switch {
		case p == problem{}:
		case worst == problem{}:
			worst = p
		default:
			worst.message += "; " + p.class + ": " + p.message
		}
	}
	worst.message = shorten(worst.message)
	return worst
}

// recordError is what is remembered over restarts and cannot be read or written.
type recordError struct{ err error }

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// acceptance returns why a state was not accepted; zero if there is no such reason in the error.
func acceptance(err error) problem {
	if record, ok := errors.AsType[*recordError](err); ok {
		return problem{starbase.ClassStateNotRecorded, oneLine(record)}
	}
	if refused, ok := errors.AsType[*starbase.RefusedError](err); ok {
		return problem{starbase.ClassStateRefused, oneLine(refused)}
	}
	return problem{}
}

// oneLine is the text of an error in one line.
func oneLine(err error) string { return shorten(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// leftovers returns what stays of projects that are deleted.
func (d *deletions) leftovers() problem {
	if len(d.stuck) == 0 {
		return problem{}
	}
	slices.Sort(d.stuck)
	return problem{starbase.ClassLeftover, shorten("of deleted projects there are left: " + strings.Join(d.stuck, "; "))}
}
