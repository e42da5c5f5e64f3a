// Package wire has the form in which a desired object is kept and sent.
//
//trueup:pure
package wire

import (
	"encoding/json"
	"maps"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Body is a desired object as JSON, its metadata first. It is immutable.
type Body []byte

// Must is what has to hold for a write: the object does not exist, when UID is
// empty, or it is the one with this UID and, if given, in this version.
type Must struct {
	UID string
	// Version is a resourceVersion. Together with an empty UID it is the one in
	// which the object went: one that exists in it has only lost a label.
	Version string
}

// neverVersion is a resourceVersion that no object can have. An apply that
// carries it creates, or fails with a conflict if the object exists: a server
// compares the version only with that of an existing object. So one request
// creates, and never takes over an object of that name.
const neverVersion = "1"

// head is what every body begins with.
const head = `{"metadata":{`

// Encode writes an object, which has a name and a kind.
func Encode(object map[string]any) (Body, error) {
	rest := maps.Clone(object)
	delete(rest, "metadata")
	metadata, err := json.Marshal(object["metadata"])
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	body := make(Body, 0, len(`{"metadata":`)+len(metadata)+len(tail))
	body = append(append(body, `{"metadata":`...), metadata...)
	return append(append(body, ','), tail[1:]...), nil
}

// Under returns the body of an apply under a precondition, without decoding it.
func (b Body) Under(must Must) ([]byte, error) {
	if must == (Must{}) {
		must.Version = neverVersion
	}
	condition, err := json.Marshal(struct {
		UID     string `json:"uid,omitempty"`
		Version string `json:"resourceVersion,omitempty"`
	}{must.UID, must.Version})
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(b)+len(condition))
	body = append(append(body, head...), condition[1:len(condition)-1]...)
	return append(append(body, ','), b[len(head):]...), nil
}

// Decode returns the object, which the caller owns. Encode has written it, so that
// it can be read.
func (b Body) Decode() map[string]any {
	var object map[string]any
	if err := utiljson.Unmarshal(b, &object); err != nil {
		return nil
	}
	return object
}
