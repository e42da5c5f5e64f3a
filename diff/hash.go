package diff

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
)

// Hash returns the content hash of a desired object or of any other value that
// encoding/json can write. It depends on the content of the value, not on its
// representation: not on the order of maps, nor on the Go type of a number (1, 1.0 and
// json.Number("1") are one), nor on whether it is a struct or a decoded map. The order
// of lists counts, and so does the difference between an absent field and one that is
// null.
//
// Maps, slices and scalars as encoding/json decodes them are read in place;
// other values are first written as JSON, and an error is encoding/json's.
func Hash(value any) (Sum, error) {
	w := hashWriter{hash: sha256.New()}
	if err := w.write(value); err != nil {
		return Sum{}, fmt.Errorf("hash: %w", err)
	}
	return truncate(w.hash.Sum(nil)), nil
}

// hashWriter writes values in an unambiguous form: a tag for the kind, the
// length where it varies, the content.
type hashWriter struct {
	hash hash.Hash
	buf  [9]byte
	text []byte   // of the string that is written, kept for the next
	keys []string // of the maps that are being written
}

func (w *hashWriter) write(value any) error {
	switch v := value.(type) {
	case nil:
		w.tag('n', 0)
	case bool:
		if v {
			w.tag('t', 0)
		} else {
			w.tag('f', 0)
		}
	case string:
		w.string(v)
	case int64:
		w.integer(v)
	case int:
		w.integer(int64(v))
	case int32:
		w.integer(int64(v))
	case float64:
		return w.float(v)
	case json.Number:
		return w.number(v)
	case []any:
		w.tag('l', uint64(len(v)))
		for i, item := range v {
			if err := w.write(item); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case map[string]any:
		w.tag('m', uint64(len(v)))
		from := len(w.keys)
		w.keys = slices.AppendSeq(w.keys, maps.Keys(v))
		slices.Sort(w.keys[from:])
		for at := from; at < from+len(v); at++ {
			key := w.keys[at] // inner maps append to keys, and cut it again
			w.string(key)
			if err := w.write(v[key]); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		w.keys = w.keys[:from]
	default:
		return w.encoded(v)
	}
	return nil
}

// encoded writes a value by way of its JSON.
func (w *hashWriter) encoded(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return err
	}
	return w.write(decoded)
}

func (w *hashWriter) number(n json.Number) error {
	if i, err := n.Int64(); err == nil {
		w.integer(i)
		return nil
	}
	f, err := n.Float64()
	if err != nil {
		return err
	}
	return w.float(f)
}

// float writes a whole number as an integer.
func (w *hashWriter) float(f float64) error {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return fmt.Errorf("%v is not a JSON number", f)
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		w.integer(int64(f))
	default:
		w.tag('d', math.Float64bits(f))
	}
	return nil
}

func (w *hashWriter) integer(i int64) {
	w.tag('i', uint64(i)) //nolint:gosec // any fixed form will do
}

func (w *hashWriter) string(s string) {
	w.tag('s', uint64(len(s)))
	w.text = append(w.text[:0], s...)
	w.hash.Write(w.text)
}

func (w *hashWriter) tag(kind byte, n uint64) {
	w.buf[0] = kind
	binary.BigEndian.PutUint64(w.buf[1:], n)
	w.hash.Write(w.buf[:])
}
