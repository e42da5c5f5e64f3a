package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Collection is what one watch RPC carries, and the collection of its keys.
type Collection string

// The collections.
const (
	Deployments Collection = ctrlv1.Deployments
	Sentinels   Collection = ctrlv1.Sentinels
	Policies    Collection = ctrlv1.Policies
)

// Key returns the key of what has this namespace and name.
func (c Collection) Key(namespace, name string) statesync.Key {
	return statesync.Key{Collection: string(c), ID: namespace + "/" + name}
}

// Split is what Key joins.
func Split(key statesync.Key) (namespace, name string) {
	namespace, name, _ = strings.Cut(key.ID, "/")
	return namespace, name
}

// Decode reads an item's value into the apply message of its collection.
func Decode(item statesync.Item, into proto.Message) error {
	// The decoder's error may show what it read.
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(item.Value, into) != nil {
		return fmt.Errorf("%s at version %d is not %s", item.Key, item.Version, into.ProtoReflect().Descriptor().Name())
	}
	return nil
}

// event is one message, whatever the RPC.
type event struct {
	// id is empty in markers and in messages of an unknown kind.
	id       string
	version  uint64
	deleted  bool
	value    json.RawMessage
	synced   *ctrlv1.Synced
	bookmark *ctrlv1.Bookmark
}

// messages is an open stream. Receive returns io.EOF or the server's error
// at its end.
type messages struct {
	receive func() (event, bool, error)
	close   func() error
}

// open opens the RPC of the collection.
func (c Collection) open(ctx context.Context, client ctrlv1connect.ClusterServiceClient, from statesync.Cursor) (messages, error) {
	switch c {
	case Deployments:
		s, err := client.WatchDeployments(
			ctx,
			connect.NewRequest(
				&ctrlv1.WatchDeploymentsRequest{VersionLastSeen: from.Version, Epoch: from.Epoch, Markers: true, Mark: from.Mark.String()},
			),
		)
		return opened(c, s, err)
	case Sentinels:
		s, err := client.WatchSentinels(
			ctx,
			connect.NewRequest(
				&ctrlv1.WatchSentinelsRequest{VersionLastSeen: from.Version, Epoch: from.Epoch, Markers: true, Mark: from.Mark.String()},
			),
		)
		return opened(c, s, err)
	case Policies:
		s, err := client.WatchCiliumNetworkPolicies(
			ctx,
			connect.NewRequest(
				&ctrlv1.WatchCiliumNetworkPoliciesRequest{VersionLastSeen: from.Version, Epoch: from.Epoch, Markers: true, Mark: from.Mark.String()},
			),
		)
		return opened(c, s, err)
	default:
		return messages{}, fmt.Errorf("%w: collection %q", statesync.ErrInvalid, c)
	}
}

// message is a [ctrlv1.Message] that is a pointer to M.
type message[M any] interface {
	*M
	ctrlv1.Message
}

func opened[M any, P message[M]](c Collection, s *connect.ServerStreamForClient[M], err error) (messages, error) {
	if err != nil {
		return messages{}, err
	}
	return messages{close: s.Close, receive: func() (event, bool, error) {
		if !s.Receive() {
			return event{}, false, s.Err()
		}
		e, err := c.read(P(s.Msg()))
		return e, true, err
	}}, nil
}

func (c Collection) read(m ctrlv1.Message) (event, error) {
	order, gone := ctrlv1.Carried(m)
	if order == nil {
		return event{version: m.GetVersion(), synced: m.GetSynced(), bookmark: m.GetBookmark()}, nil
	}
	e := event{id: c.Key(order.GetK8SNamespace(), order.GetK8SName()).ID, version: m.GetVersion(), deleted: gone}
	if gone {
		return e, nil
	}
	value, err := protojson.Marshal(order)
	if err != nil {
		return event{}, fmt.Errorf("%s at version %d cannot be encoded", c, m.GetVersion())
	}
	e.value = value
	return e, nil
}
