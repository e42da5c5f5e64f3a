package main

import (
	"bytes"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// growthTexts are what distinguishes an object from the others of its form: each text is as long
// for every object.
type growthTexts [7]string

// texts are those of an object with its hash, in the version that it has now.
func (w growthWorld) texts(i int, hash string, version, made uint64) growthTexts {
	return growthTexts{
		w.name(i), growthNamespace(i), growthUID(i, made), growthVersion(version), hash,
		w.parent(i / 10).GetName(), string(w.parent(i / 10).GetUID()),
	}
}

// growthUID is the UID of the object that was made as the nth one of its name.
func growthUID(i int, made uint64) string { return fmt.Sprintf("%08d-0000-4000-8000-%012d", made, i) }

// growthVersion is a resourceVersion.
func growthVersion(n uint64) string { return fmt.Sprintf("1%09d", n) }

// growthFrame is the encoding of the sample, with the places of its texts. Replaced by those of
// another object, it is the encoding of that: to encode each would take the server longer than
// a client takes to read it.
type growthFrame struct {
	encoded []byte
	spots   []growthSpot
}

type growthSpot struct{ at, text int }

func newGrowthFrame(encoded []byte, sample growthTexts) growthFrame {
	f := growthFrame{encoded: encoded}
	for text, of := range sample {
		for at := 0; of != ""; {
			found := bytes.Index(encoded[at:], []byte(of))
			if found < 0 {
				break
			}
			f.spots = append(f.spots, growthSpot{at + found, text})
			at += found + len(of)
		}
	}
	return f
}

// of appends the encoding of the object with these texts.
func (f *growthFrame) of(to []byte, texts *growthTexts) []byte {
	begin := len(to)
	to = append(to, f.encoded...)
	for _, spot := range f.spots {
		copy(to[begin+spot.at:], texts[spot.text])
	}
	return to
}

// growthShape is how a client wants its objects.
type growthShape struct{ metadata, protobuf bool }

func shapeOf(accept string) growthShape {
	return growthShape{strings.Contains(accept, "as=PartialObjectMetadata"), strings.Contains(accept, runtime.ContentTypeProtobuf)}
}

func (s growthShape) info() runtime.SerializerInfo {
	name := runtime.ContentTypeJSON
	if s.protobuf {
		name = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), name)
	return info
}

// contentType is that of an answer, and of a watch.
func (s growthShape) contentType(watch bool) string {
	switch {
	case !s.protobuf:
		return runtime.ContentTypeJSON
	case watch:
		return runtime.ContentTypeProtobuf + ";stream=watch"
	default:
		return runtime.ContentTypeProtobuf
	}
}

// encode returns an object alone.
func (s growthShape) encode(object runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	err := s.info().Serializer.Encode(object, &b)
	return b.Bytes(), err
}

// event returns a watch event with its frame around it.
func (s growthShape) event(kind string, object runtime.Object) ([]byte, error) {
	raw, err := s.encode(object)
	if err != nil {
		return nil, err
	}
	info := s.info()
	var event, framed bytes.Buffer
	if err := info.StreamSerializer.Encode(&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}}, &event); err != nil {
		return nil, err
	}
	_, err = info.StreamSerializer.Framer.NewFrameWriter(&framed).Write(event.Bytes())
	return framed.Bytes(), err
}
