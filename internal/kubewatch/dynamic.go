package kubewatch

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Dynamic returns a client as dynamic.NewForConfigAndClient does, which decodes the events of
// watches with less work: that one reads the bytes of each event a dozen times. The objects are the
// same. A nil web is the client of the config.
func Dynamic(config *rest.Config, web *http.Client) (*dynamic.DynamicClient, error) {
	config = dynamic.ConfigFor(config)
	if web == nil {
		var err error
		if web, err = rest.HTTPClientFor(config); err != nil {
			return nil, err
		}
	}
	config.NegotiatedSerializer = lean{config.NegotiatedSerializer}
	config.APIPath = "/unused" // the dynamic client states whole paths
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, web)
	if err != nil {
		return nil, err
	}
	return dynamic.New(client), nil
}

// lean are serializers of which those of JSON decode watches with less work.
type lean struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (l lean) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := l.NegotiatedSerializer.SupportedMediaTypes()
	all := make([]runtime.SerializerInfo, len(infos))
	for i, info := range infos {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			stream := *info.StreamSerializer
			stream.Serializer = leanEvents{stream.Serializer}
			info.Serializer, info.StreamSerializer = leanObjects{info.Serializer}, &stream
		}
		all[i] = info
	}
	return all
}

// leanEvents decodes the frame around the object of an event.
type leanEvents struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (l leanEvents) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error,
) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return l.Serializer.Decode(data, defaults, into)
	}
	var frame struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(data, &frame); err != nil {
		return nil, nil, fmt.Errorf("event of a watch: %w", err)
	}
	event.Type, event.Object.Raw = frame.Type, frame.Object
	return event, defaults, nil
}

// leanObjects decodes the object of an event. What is asked for in another way, or is no object
// of a resource, such as a Status, is left to the serializer of the client.
type leanObjects struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (l leanObjects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	runtime.Object, *schema.GroupVersionKind, error,
) {
	if into != nil || defaults != nil {
		return l.Serializer.Decode(data, defaults, into)
	}
	object := unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &object.Object); err != nil {
		return l.Serializer.Decode(data, nil, nil) // it words the error
	}
	kind := object.GroupVersionKind()
	_, named := object.Object["metadata"].(map[string]any)
	if !named || kind.Kind == "" || kind.Version == "" || kind.Kind == "Status" {
		return l.Serializer.Decode(data, nil, nil)
	}
	return &object, &kind, nil
}
