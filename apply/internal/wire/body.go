// Package wire is the JSON form in which a desired object is kept and sent.
//
//trueup:pure
package wire

import (
	"bytes"
	"encoding/json"
	"maps"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Body is a desired object as JSON, its metadata first. It is immutable.
type Body []byte

// Must is the precondition of a write: the object does not exist, if UID is empty, or
// it has this UID and, if given, this version.
type Must struct {
	UID string
	// Version is a resourceVersion. Together with an empty UID it is the version in
	// which the object was lost: an object that exists in it has only lost a label.
	Version string
}

// neverVersion is a resourceVersion that no object can have. An apply that
// carries it creates, or fails with a conflict if the object exists: a server
// compares the version only with an existing object's. One request creates the
// object, and never adopts an existing one.
const neverVersion = "1"

// head is the beginning of every body.
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

// Under returns the body of an apply under a precondition, without decoding it. It is JSON
// with a line break after each brace.
//
// A server reads it as YAML. Its parser takes a brace for the possible beginning of a key until
// the line ends, or for 1,024 characters, and keeps all that it has read until then. The line
// breaks spare it half of the memory that it allocates for that, which is a sixth of all that the
// server allocates for a creation.
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
	body := make([]byte, 0, len(b)+len(condition)+bytes.Count(b, []byte("{")))
	body = appendLines(body, []byte(head))
	body = append(append(body, condition[1:len(condition)-1]...), ',')
	return appendLines(body, b[len(head):]), nil
}

// appendLines appends JSON with a line break after each brace that opens an object.
func appendLines(to, from []byte) []byte {
	text := false // within a string
	for i := 0; i < len(from); i++ {
		c := from[i]
		to = append(to, c)
		switch {
		case c == '"':
			text = !text
		case text && c == '\\': // the next may be a quote
			i++
			to = append(to, from[i])
		case !text && c == '{':
			to = append(to, '\n')
		}
	}
	return to
}

// Decode returns the object, which the caller owns. It cannot fail: Encode has written
// the body.
func (b Body) Decode() map[string]any {
	var object map[string]any
	if err := utiljson.Unmarshal(b, &object); err != nil {
		return nil
	}
	return object
}
