package view

import (
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// uid is the UID of an object in 16 bytes if it has the form that servers give, and
// otherwise the text itself behind a mark. Equal UIDs are equal as uid.
type uid string

const packedUID = 16

func packUID(text types.UID) uid {
	digits := strings.ReplaceAll(string(text), "-", "")
	raw, err := hex.DecodeString(digits)
	if err == nil && len(raw) == packedUID && uid(raw).String() == string(text) {
		return uid(raw)
	}
	if len(text)+1 == packedUID {
		return uid("~~" + text)
	}
	return uid("~" + text)
}

// String returns the UID as the server writes it.
func (u uid) String() string {
	if len(u) != packedUID {
		return strings.TrimLeft(string(u), "~")
	}
	var text [36]byte
	at := 0
	for i := range packedUID {
		switch i {
		case 4, 6, 8, 10:
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], []byte(u[i:i+1]))
		at += 2
	}
	return string(text[:])
}
