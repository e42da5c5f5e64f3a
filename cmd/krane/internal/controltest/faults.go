package controltest

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// Faults are the failures of a server. The zero value has none.
type Faults struct {
	// Token is what callers must show. Empty: secret.
	Token string
	// Down drops every connection without an answer.
	Down bool
	// Cell, if set, is the only one that is served.
	Cell string
	// UnknownRegion answers every call as if the region were none.
	UnknownRegion bool
	// CutAfter ends each stream without an error after so many messages. 0: never.
	CutAfter int
	// Lie states in Synced one message more than there were, WrongDigest another
	// digest.
	Lie, WrongDigest bool
	// Early sends a bookmark before the first message of each stream, as a long list
	// has one in its middle.
	Early bool
	// NoMarkers sends none. NoMarks sends markers without marks, as an older control
	// plane does.
	NoMarkers, NoMarks bool
	// Hide leaves out all but markers, as a server that has lost its rows does,
	// and answers point queries with NotFound.
	Hide bool
	// Internal fails every stream with Internal at once.
	Internal bool
	// Broken is a collection whose streams all fail with Internal.
	Broken string
	// Item, if set, is called before each message but markers is sent.
	Item func(collection string, version uint64)
	// Report, if set, is asked before each report is stored; with its error the
	// report is refused.
	Report func(proto.Message) error
	// NotFound answers point queries so, Query with that code.
	NotFound bool
	Query    connect.Code
	// Gone answers point queries for deployments with delete.
	Gone bool
}

// Set changes the faults and cuts the streams, so that they hold at once.
func (s *Server) Set(f Faults) {
	s.mu.Lock()
	s.faults = f
	s.mu.Unlock()
	s.Cut()
}

// SetCalls changes the faults of new calls and streams. Open streams go on.
func (s *Server) SetCalls(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Cut ends the open streams without an error.
func (s *Server) Cut() { s.end(nil) }

// Revoke ends the open streams as if their token were revoked. A new stream with the
// same token is served.
func (s *Server) Revoke() {
	s.end(connect.NewError(connect.CodeUnauthenticated, errors.New("revoked")))
}

func (s *Server) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
	for _, cancel := range s.cut {
		cancel(cause)
	}
}
