package cluster

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
)

// codec is protobuf for Connect. What every stream sends it marshals once.
type codec struct {
	// bytes has what each message in it is on the wire. The messages in it do
	// not change.
	bytes sync.Map
}

// remember marshals the message, until it is forgotten.
func (c *codec) remember(message state) {
	if m, ok := message.(proto.Message); ok {
		if b, err := proto.Marshal(m); err == nil { // else Marshal returns why not
			c.bytes.Store(message, b)
		}
	}
}

func (c *codec) forget(message state) {
	if message != nil {
		c.bytes.Delete(message)
	}
}

// Name implements [connect.Codec].
func (*codec) Name() string { return "proto" }

// IsBinary implements connect's codec of bytes.
func (*codec) IsBinary() bool { return true }

// Marshal implements [connect.Codec].
func (c *codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is what Connect takes instead of Marshal where it can.
func (c *codec) MarshalAppend(to []byte, message any) ([]byte, error) {
	if b, ok := c.bytes.Load(message); ok {
		if b, ok := b.([]byte); ok {
			return append(to, b...), nil
		}
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

// Unmarshal implements [connect.Codec].
func (*codec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", message)
	}
	return proto.Unmarshal(data, m)
}
