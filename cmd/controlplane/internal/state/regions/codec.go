package regions

import (
	"bytes"
	"fmt"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// codec is protobuf for Connect. What every stream sends it marshals once.
type codec struct {
	// bytes has what each message in it is on the wire. The messages in it do
	// not change.
	bytes sync.Map
}

// remember marshals the message, until it is forgotten.
func (c *codec) remember(message ctrlv1.Message) {
	if message == nil { // the item cannot be sent
		return
	}
	if b, err := proto.Marshal(message); err == nil { // else Marshal returns why not
		c.bytes.Store(message, b)
	}
}

func (c *codec) forget(message ctrlv1.Message) {
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
	if _, ok := message.(*ctrlv1.ReportDeploymentStatusRequest); ok && instancesIn(data) > maxInstances {
		return errTooManyInstances
	}
	return proto.Unmarshal(data, m)
}

var errTooManyInstances = fmt.Errorf("instances: are more than %d", maxInstances)

// instancesIn counts the instances of a report before it is decoded: a small text can
// stand for a large list.
func instancesIn(report []byte) (n int) {
	const updateField, instancesField = 1, 2
	eachField(report, func(field protowire.Number, value []byte) {
		if field == updateField {
			eachField(value, func(field protowire.Number, _ []byte) {
				if field == instancesField {
					n++
				}
			})
		}
	})
	return n
}

// eachField calls f for the fields of a message that have bytes, until one is malformed.
func eachField(message []byte, f func(field protowire.Number, value []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return
			}
			f(field, value)
			message = message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return
		}
		message = message[n:]
	}
}

// jsonCodecs are the JSON form of protobuf, under the names that Connect has for it.
func jsonCodecs() connect.Option {
	return connect.WithOptions(connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"}))
}

// jsonCodec decodes what Connect's own codec does, within the same limit.
type jsonCodec struct{ name string }

// Name implements [connect.Codec].
func (c jsonCodec) Name() string { return c.name }

// Marshal implements [connect.Codec].
func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no protobuf message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements [connect.Codec].
func (jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", message)
	}
	// An instance is an object, and none of its texts has a brace.
	const around = 2
	if _, ok := message.(*ctrlv1.ReportDeploymentStatusRequest); ok && bytes.Count(data, []byte("{")) > maxInstances+around {
		return errTooManyInstances
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}
