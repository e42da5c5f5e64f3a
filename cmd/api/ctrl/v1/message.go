package ctrlv1

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message is one message of a watch stream: a [DeploymentState], a [SentinelState] or a
// [CiliumNetworkPolicyState].
type Message interface {
	proto.Message
	GetVersion() uint64
	GetSynced() *Synced
	GetBookmark() *Bookmark
}

// The collections: what one watch RPC carries.
const (
	Deployments = "deployments"
	Sentinels   = "sentinels"
	Policies    = "policies"
)

// NewMessage returns an empty message of a collection, which is one of the three constants.
func NewMessage(collection string) Message {
	switch collection {
	case Sentinels:
		return &SentinelState{}
	case Policies:
		return &CiliumNetworkPolicyState{}
	}
	return &DeploymentState{}
}

// NewApply returns an empty apply message of a collection, which is one of the three constants.
func NewApply(collection string) Order {
	switch collection {
	case Sentinels:
		return &ApplySentinel{}
	case Policies:
		return &ApplyCiliumNetworkPolicy{}
	}
	return &ApplyDeployment{}
}

// NewDelete returns the delete message of a resource; collection is one of the three constants.
func NewDelete(collection, namespace, name string) Order {
	switch collection {
	case Sentinels:
		return &DeleteSentinel{K8SNamespace: namespace, K8SName: name}
	case Policies:
		return &DeleteCiliumNetworkPolicy{K8SNamespace: namespace, K8SName: name}
	}
	return &DeleteDeployment{K8SNamespace: namespace, K8SName: name}
}

// Order is what a [Message] carries about one resource: an apply or a delete message.
type Order interface {
	proto.Message
	GetK8SNamespace() string
	GetK8SName() string
}

// content is the oneof of every Message.
const content protoreflect.Name = "state"

// Put sets what a message carries, an order or a marker, and its version. It panics if the
// content is not one of that message.
func Put(m Message, of proto.Message, version uint64) {
	to, kind := m.ProtoReflect(), of.ProtoReflect().Descriptor()
	to.Set(to.Descriptor().Fields().ByName("version"), protoreflect.ValueOfUint64(version))
	fields := to.Descriptor().Oneofs().ByName(content).Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); field.Message() == kind {
			to.Set(field, protoreflect.ValueOfMessage(of.ProtoReflect()))
			return
		}
	}
	//nolint:forbidigo // a defect of the program
	panic(fmt.Sprintf("ctrlv1: a %s carries no %s", to.Descriptor().Name(), kind.Name()))
}

// Carried returns the order of a message, and whether it is a delete message. It returns nil
// for a marker, and for content of a later version of the contract.
func Carried(m Message) (order Order, deleted bool) {
	from := m.ProtoReflect()
	field := from.WhichOneof(from.Descriptor().Oneofs().ByName(content))
	if field == nil {
		return nil, false
	}
	order, _ = from.Get(field).Message().Interface().(Order) // nil: a marker
	return order, field.Name() == "delete"
}
