package regions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"log/slog"
	"strconv"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// WatchDeployments streams what is wanted of the region's deployments.
func (s *Service) WatchDeployments(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchDeploymentsRequest],
	stream *connect.ServerStream[ctrlv1.DeploymentState],
) error {
	return watch(ctx, s, deployments, r.Msg, stream)
}

// WatchSentinels streams what is wanted of the region's sentinels.
func (s *Service) WatchSentinels(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchSentinelsRequest],
	stream *connect.ServerStream[ctrlv1.SentinelState],
) error {
	return watch(ctx, s, sentinels, r.Msg, stream)
}

// WatchCiliumNetworkPolicies streams the desired state of the region's network
// policies.
func (s *Service) WatchCiliumNetworkPolicies(
	ctx context.Context,
	r *connect.Request[ctrlv1.WatchCiliumNetworkPoliciesRequest],
	stream *connect.ServerStream[ctrlv1.CiliumNetworkPolicyState],
) error {
	return watch(ctx, s, policies, r.Msg, stream)
}

// request is what the three requests have in common.
type request interface {
	resumed
	GetRegion() string
	GetMarkers() bool
}

// resumed is the position that a request resumes at.
type resumed interface {
	GetVersionLastSeen() uint64
	GetEpoch() string
	GetMark() string
}

// sent counts the messages sent on a stream.
type sent struct {
	region, collection string
	cache              *cache
	applies, deletes   prometheus.Counter
	count              uint64
	sum                hash.Hash
	line               []byte
}

// message is a [ctrlv1.Message] that is a pointer to T.
type message[T any] interface {
	*T
	ctrlv1.Message
}

// watch sends one stream.
func watch[T any, P message[T]](
	ctx context.Context,
	s *Service,
	collection string,
	r request,
	stream *connect.ServerStream[T],
) (err error) {
	defer func() { err = forStream(err) }()
	within, through, err := s.gate.Door.Open(ctx) // once more: the agent has taken its time to send its request
	if err != nil {
		return s.internal(ctx, "open a stream", err)
	}
	defer through()
	ctx = within
	c, err := s.admit(ctx, r.GetRegion())
	if err != nil {
		return err
	}
	if r.GetMarkers() && r.GetVersionLastSeen() > 0 && r.GetEpoch() == "" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("epoch: is required with markers and a version above 0"))
	}
	cursor := statesync.Cursor{Epoch: r.GetEpoch(), Version: r.GetVersionLastSeen()}
	if err := cursor.Mark.UnmarshalText([]byte(r.GetMark())); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	if cursor.Epoch == "" {
		// Agents without the extension send no epoch.
		page, err := s.store.Database.Log.Read(ctx, c.Scope, 0, 1)
		if err != nil {
			return s.ended(ctx, err)
		}
		cursor.Epoch = page.Epoch
	}
	ctx, closed := s.opened.Open(ctx)
	defer closed()
	defer s.streaming(c.Scope, collection)()
	sent := sent{
		region: c.Scope, collection: collection, sum: sha256.New(),
		applies: s.sent.WithLabelValues(collection, "apply"), deletes: s.sent.WithLabelValues(collection, "delete"),
	}
	defer func() { s.caches.leave(sent.cache) }()
	err = s.feed.Watch(
		ctx,
		statesync.Watch{Scope: c.Scope, Cursor: cursor, Collections: []string{collection}},
		func(f statesync.Frame) (err error) {
			through()
			if sent.cache == nil { // all frames have one epoch
				sent.cache = s.caches.join(c.Scope, collection, f.Epoch)
			}
			// The messages of a frame are sent as one.
			release := hold(ctx)
			defer func() { err = errors.Join(err, release()) }()
			for _, i := range f.Items {
				m := s.message(ctx, i, &sent)
				if m == nil {
					continue
				}
				if err := stream.Send(m.(P)); err != nil { // the collection's
					return err
				}
			}
			if !r.GetMarkers() {
				return nil
			}
			marker := P(new(T))
			switch f.Type {
			case statesync.FrameSynced:
				ctrlv1.Put(
					marker,
					&ctrlv1.Synced{Epoch: f.Epoch, Version: f.Version, Count: sent.count, Digest: sent.sum.Sum(nil), Mark: f.Mark.String()},
					0,
				)
				return stream.Send(marker)
			case statesync.FrameBookmark, statesync.FrameChanges:
				if f.More {
					return nil
				}
				ctrlv1.Put(marker, &ctrlv1.Bookmark{Epoch: f.Epoch, Version: f.Version, Head: f.Head, Mark: f.Mark.String()}, 0)
				return stream.Send(marker)
			case statesync.FrameHeader, statesync.FrameItems, statesync.FramePage:
			}
			return nil
		},
	)
	return s.ended(ctx, err)
}

// rendered is an item on the wire: a message, or why there is none. It is made once
// for all streams, which must not change it.
type rendered struct {
	version uint64
	message ctrlv1.Message
	// id, which is namespace and name, and kind identify it in the digest of a
	// stream. Both kinds of message carry them.
	id, kind string
	reason   string
}

// message returns the message of one item, and nil if there is none. An item that
// cannot be sent is logged and skipped: it must not hold up the stream.
func (s *Service) message(ctx context.Context, i statesync.Item, sent *sent) ctrlv1.Message {
	if i.Deleted {
		sent.cache.put(i.ID, &rendered{})
		return nil
	}
	r := sent.cache.get(i.ID)
	if r == nil || r.version != i.Version {
		r = render(sent.collection, i)
		sent.cache.put(i.ID, r)
	}
	if r.reason != "" {
		s.skipped.WithLabelValues(sent.collection, r.reason).Inc()
		s.logger.ErrorContext(
			ctx,
			"row skipped",
			slog.String("region", sent.region),
			slog.String("collection", sent.collection),
			slog.String("id", i.ID),
			slog.Uint64("version", i.Version),
			slog.String("reason", r.reason),
		)
		return nil
	}
	sent.count++
	sent.line = append(sent.line[:0], r.id...)
	sent.line = strconv.AppendUint(append(sent.line, ' '), i.Version, 10)
	sent.line = append(append(append(sent.line, ' '), r.kind...), '\n')
	_, _ = sent.sum.Write(sent.line) // a hash never fails
	if r.kind == "apply" {
		sent.applies.Inc()
	} else {
		sent.deletes.Inc()
	}
	return r.message
}

// render returns what an item is on the wire.
func render(collection string, i statesync.Item) *rendered {
	r := &rendered{version: i.Version, reason: "not JSON"}
	var w wanted
	if err := json.Unmarshal(i.Value, &w); err == nil {
		var order ctrlv1.Order
		if order, r.reason = decode(collection, w.State, w.Apply); r.reason == "" {
			r.message, r.kind = ctrlv1.NewMessage(collection), kindOf(collection, w.State)
			ctrlv1.Put(r.message, order, i.Version)
			r.id = order.GetK8SNamespace() + "/" + order.GetK8SName()
		}
	}
	return r
}

// ended returns the error that ends the stream of the agent.
func (s *Service) ended(ctx context.Context, err error) error {
	var end *statesync.EndError
	var failure *connect.Error
	switch revocation := revoked(ctx); {
	case revocation != nil:
		return revocation
	case agents.Slow(ctx) != nil:
		return s.internal(context.WithoutCancel(ctx), "open a stream", agents.Slow(ctx))
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, statesync.ErrResync):
		return refuse("resync-required", err.Error())
	case errors.Is(err, statesync.ErrUnknownScope):
		return refuse(unknownRegion, "this region has no log: delete nothing")
	case errors.Is(err, statesync.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &end) && end.Reason == statesync.EndOfAge:
		return nil
	case errors.As(err, &end) && end.Reason == statesync.EndOfLog:
		s.logger.ErrorContext(ctx, "stream ended: the log cannot be read", slog.Any("error", err))
		return errUnreadable()
	case errors.As(err, &end) && end.Reason == statesync.EndOfServer:
		return connect.NewError(connect.CodeUnavailable, errors.New("the control plane is going down; come back with your cursor"))
	}
	return s.internal(ctx, "stream", err)
}

// forStream returns the error of a stream that ends since the database cannot be read: it
// may be resumed. Internal is for a row that cannot be sent.
func forStream(err error) error {
	if connect.CodeOf(err) == connect.CodeInternal {
		return errUnreadable()
	}
	return err
}

func errUnreadable() error {
	return connect.NewError(connect.CodeUnavailable, errors.New("the log cannot be read at the moment; come back with your cursor"))
}

// kindOf returns what a state of a resource means: apply, delete, or "" if the
// state is unknown.
func kindOf(collection, state string) string {
	switch {
	case state == "running",
		collection == deployments && (state == "started" || state == "starting"):
		return "apply"
	case state == "archived", state == "standby" && collection != policies,
		collection == deployments && (state == "stopped" || state == "stopping"):
		return "delete"
	}
	return ""
}

// decode returns the order for a resource in that state, or why there is none.
func decode(collection, state string, spec []byte) (order ctrlv1.Order, reason string) {
	kind := kindOf(collection, state)
	if kind == "" {
		return nil, "unhandled state"
	}
	nouns := map[string]string{deployments: "deployment", sentinels: "sentinel", policies: "policy"}
	if nouns[collection] == "" {
		return nil, "unknown collection"
	}
	order = ctrlv1.NewApply(collection)
	switch {
	case (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(spec, order) != nil:
		return nil, "not a " + nouns[collection]
	case kind == "delete":
		return ctrlv1.NewDelete(collection, order.GetK8SNamespace(), order.GetK8SName()), ""
	}
	if policy, ok := order.(*ctrlv1.ApplyCiliumNetworkPolicy); ok && len(policy.GetPolicy()) == 0 {
		return nil, "empty policy"
	}
	return order, ""
}
