package controltest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Server is the control plane of one region. Start makes one. Its fields may be
// changed through Set while it runs.
type Server struct {
	ctrlv1connect.UnimplementedClusterServiceHandler

	// URL is where it listens.
	URL string
	// Log is the desired state, in the scope of the region.
	Log    statesync.Memory
	region string

	mu      sync.Mutex
	faults  Faults
	reports []proto.Message
	lists   map[string]int
	streams map[string]int
	sent    map[string]int
	beats   int
	cuts    int // how often streams were cut
	// held are the deletions of the last heartbeat, and approved the digest of its answer.
	held     *ctrlv1.HeldDeletions
	approved string
	calls    int
	queries  int
	cut      map[int]context.CancelCauseFunc
	next     int
	source   statesync.Server
	epoch    uint64 // that was claimed last
	// acknowledged is the position in the newest heartbeat.
	acknowledged statesync.Cursor
}

// Start starts a server for the region, which ends with the test.
func Start(tb testing.TB, region string) *Server {
	tb.Helper()
	s := &Server{
		region:  region,
		lists:   map[string]int{},
		streams: map[string]int{},
		sent:    map[string]int{},
		cut:     map[int]context.CancelCauseFunc{},
	}
	if err := s.Log.AddScope(region); err != nil {
		tb.Fatal(err)
	}
	s.source.Log, s.source.Heartbeat = &s.Log, 500*time.Millisecond
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.source.Start(ctx) }) // always nil
	mux := http.NewServeMux()
	mux.Handle(ctrlv1connect.NewClusterServiceHandler(s))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.faults.Down
		s.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler) //nolint:forbidigo // drops the connection
		}
		mux.ServeHTTP(w, r)
	}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	s.URL = server.URL
	tb.Cleanup(func() {
		cancel()
		s.Cut()
		server.CloseClientConnections()
		server.Close()
		running.Wait()
	})
	return s
}

// Want commits desired state: apply messages, and delete messages.
func (s *Server) Want(tb testing.TB, messages ...proto.Message) {
	tb.Helper()
	changes := make([]statesync.Change, len(messages))
	for n, m := range messages {
		c := statesync.Change{Scope: s.region}
		switch m := m.(type) {
		case *ctrlv1.ApplyDeployment, *ctrlv1.ApplySentinel, *ctrlv1.ApplyCiliumNetworkPolicy:
			value, err := protojson.Marshal(m)
			if err != nil {
				tb.Fatal(err)
			}
			c.Value = value
		default:
			c.Deleted = true
		}
		c.Key = keyOf(m)
		changes[n] = c
	}
	if err := s.Log.Commit(changes...); err != nil {
		tb.Fatal(err)
	}
}

func keyOf(m proto.Message) statesync.Key {
	key := func(collection string, m interface {
		GetK8SNamespace() string
		GetK8SName() string
	},
	) statesync.Key {
		return statesync.Key{Collection: collection, ID: m.GetK8SNamespace() + "/" + m.GetK8SName()}
	}
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		return key(deployments, m)
	case *ctrlv1.DeleteDeployment:
		return key(deployments, m)
	case *ctrlv1.ApplySentinel:
		return key(sentinels, m)
	case *ctrlv1.DeleteSentinel:
		return key(sentinels, m)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		return key(policies, m)
	case *ctrlv1.DeleteCiliumNetworkPolicy:
		return key(policies, m)
	default:
		return statesync.Key{}
	}
}

const (
	deployments = ctrlv1.Deployments
	sentinels   = ctrlv1.Sentinels
	policies    = ctrlv1.Policies
)

// Forget loses the row of an apply message, as a removal by hand in SQL does: no
// delete message is ever sent, and the history is another.
func (s *Server) Forget(tb testing.TB, m proto.Message) {
	tb.Helper()
	page, err := s.Log.Read(tb.Context(), s.region, 0, 1<<20)
	if err != nil {
		tb.Fatal(err)
	}
	kept := slices.DeleteFunc(page.Items, func(i statesync.Item) bool { return i.Key == keyOf(m) })
	if err := s.Log.Restore(s.region, kept); err != nil {
		tb.Fatal(err)
	}
}

// Renew begins another history with the same rows, as a restore does: all
// streams end, and all agents list again.
func (s *Server) Renew(tb testing.TB) {
	tb.Helper()
	s.Forget(tb, nil)
}

// Reports returns the reports that were accepted, in their order.
func (s *Server) Reports() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports)
}

// Acknowledged returns the position in the newest heartbeat.
func (s *Server) Acknowledged() statesync.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acknowledged
}

// Counts are what a Server has seen of its callers.
type Counts struct {
	// Streams and Lists count streams by collection, Sent messages but markers.
	Streams, Lists, Sent map[string]int
	Heartbeats           int
	// Calls counts heartbeats and Queries point queries, those that were refused
	// too.
	Calls, Queries int
}

// Counts returns them.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{
		Streams:    maps.Clone(s.streams),
		Lists:      maps.Clone(s.lists),
		Sent:       maps.Clone(s.sent),
		Heartbeats: s.beats,
		Calls:      s.calls,
		Queries:    s.queries,
	}
}

func (s *Server) enter(header http.Header) (Faults, error) {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	want := f.Token
	if want == "" {
		want = "secret"
	}
	switch {
	case header.Get("Authorization") != "Bearer "+want:
		return f, connect.NewError(connect.CodeUnauthenticated, errors.New("another token"))
	case header.Get("X-Krane-Region") != s.region || f.UnknownRegion:
		return f, failed("unknown-region")
	case f.Cell != "" && header.Get("X-Krane-Cell") != f.Cell:
		return f, failed("region-claimed")
	}
	return f, nil
}

func failed(reason string) error {
	err := connect.NewError(connect.CodeFailedPrecondition, errors.New(reason))
	if detail, detailErr := connect.NewErrorDetail(&ctrlv1.ErrorDetail{Reason: reason}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}

// sent is what one stream has sent.
type sent struct {
	count int
	hash  hash.Hash
}

// request is what the requests of all streams state.
type request interface {
	GetEpoch() string
	GetVersionLastSeen() uint64
	GetMark() string
}

// watch sends the items and markers of one stream by send, which gets an item or
// a marker.
func (s *Server) watch(
	ctx context.Context,
	header http.Header,
	collection string,
	r request,
	send func(statesync.Item, proto.Message) error,
) error {
	s.mu.Lock()
	cuts := s.cuts
	s.mu.Unlock()
	f, err := s.enter(header)
	from := statesync.Cursor{Epoch: r.GetEpoch(), Version: r.GetVersionLastSeen()}
	if err := from.Mark.UnmarshalText([]byte(r.GetMark())); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	switch {
	case err != nil:
		return err
	case f.Internal || f.Broken == collection:
		return connect.NewError(connect.CodeInternal, errors.New("database"))
	}
	if from.Version > 0 && from.Epoch == "" { // not compared, without markers
		if !f.NoMarkers {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("epoch: is required with markers"))
		}
		page, err := s.Log.Read(ctx, s.region, from.Version, 1)
		if err != nil {
			return err
		}
		from.Epoch = page.Epoch
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	id := s.next
	s.next++
	s.cut[id] = cancel
	if s.cuts != cuts { // while it was opened
		cancel(nil)
	}
	s.streams[collection]++
	if from.Version == 0 {
		s.lists[collection]++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cut, id)
	}()
	t := sent{hash: sha256.New()}
	err = s.source.Watch(
		ctx,
		statesync.Watch{Scope: s.region, Cursor: from, Collections: []string{collection}},
		func(frame statesync.Frame) error {
			if ctx.Err() != nil {
				return errCut // what came after the cut is not sent
			}
			if f.NoMarks {
				frame.Mark = statesync.Mark{}
			}
			for _, i := range frame.Items {
				if f.CutAfter > 0 && t.count >= f.CutAfter {
					return errCut
				}
				if f.Hide {
					continue
				}
				if f.Item != nil {
					f.Item(collection, i.Version)
				}
				t.add(i)
				s.mu.Lock() // before the agent can act on it
				s.sent[collection]++
				s.mu.Unlock()
				if err := send(i, nil); err != nil {
					return err
				}
			}
			switch {
			case f.Early && frame.Type == statesync.FrameHeader:
				return send(statesync.Item{}, &ctrlv1.Bookmark{Epoch: frame.Epoch, Version: frame.Version, Head: frame.Head})
			case f.NoMarkers || frame.More || frame.Type == statesync.FrameItems || frame.Type == statesync.FrameHeader:
				return nil
			case frame.Type == statesync.FrameSynced:
				return send(statesync.Item{}, t.synced(frame, f))
			default:
				return send(statesync.Item{}, &ctrlv1.Bookmark{Epoch: frame.Epoch, Version: frame.Version, Head: frame.Head, Mark: frame.Mark.String()})
			}
		},
	)
	revoked, ok := errors.AsType[*connect.Error](context.Cause(ctx))
	switch {
	case ok:
		return revoked
	case errors.Is(err, errCut), ctx.Err() != nil:
		return nil // without an error
	case errors.Is(err, statesync.ErrResync):
		return failed("resync-required")
	default:
		return err
	}
}

var errCut = errors.New("cut")

func (t *sent) add(i statesync.Item) {
	verb := "apply"
	if i.Deleted {
		verb = "delete"
	}
	t.count++
	_, _ = fmt.Fprintf(t.hash, "%s %d %s\n", i.ID, i.Version, verb)
}

func (t *sent) synced(frame statesync.Frame, f Faults) *ctrlv1.Synced {
	m := &ctrlv1.Synced{
		Epoch:   frame.Epoch,
		Version: frame.Version,
		Count:   uint64(t.count),
		Digest:  t.hash.Sum(nil),
		Mark:    frame.Mark.String(),
	} //nolint:gosec // small
	if f.Lie {
		m.Count++
	}
	if f.WrongDigest {
		m.Digest[0]++
	}
	return m
}

func split(id string) (namespace, name string) {
	namespace, name, _ = strings.Cut(id, "/")
	return namespace, name
}
