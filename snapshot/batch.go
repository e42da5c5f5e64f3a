package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// batch is a list of encoded records, one after the other in one buffer.
type batch struct {
	text    bytes.Buffer
	encoder *json.Encoder
	ends    []int
}

func newBatch() *batch {
	b := &batch{}
	b.encoder = json.NewEncoder(&b.text)
	return b
}

// add encodes a record. With an error the batch is as it was.
func (b *batch) add(record any) error {
	before := b.text.Len()
	if err := b.encoder.Encode(record); err != nil {
		b.text.Truncate(before)
		return fmt.Errorf("encode record: %w", err)
	}
	b.text.Truncate(b.text.Len() - 1) // the line end
	b.ends = append(b.ends, b.text.Len())
	return nil
}

// dropLast removes the record that was added last and returns it. It is valid until
// the next call.
func (b *batch) dropLast() []byte {
	last := b.last()
	b.ends = b.ends[:len(b.ends)-1]
	text := b.text.Bytes()
	b.text.Truncate(b.text.Len() - last)
	return text[len(text)-last:]
}

// last is the size of the record that was added last.
func (b *batch) last() int {
	if len(b.ends) == 1 {
		return b.ends[0]
	}
	return b.ends[len(b.ends)-1] - b.ends[len(b.ends)-2]
}

// put adds a record that is encoded already.
func (b *batch) put(record []byte) {
	b.text.Write(record)
	b.ends = append(b.ends, b.text.Len())
}

// bytes is the size of the records in a list, with a comma each.
func (b *batch) bytes() int { return b.text.Len() + len(b.ends) }

// records returns the records, valid until the next change.
func (b *batch) records() []json.RawMessage {
	text, begin := b.text.Bytes(), 0
	list := make([]json.RawMessage, len(b.ends))
	for i, end := range b.ends {
		list[i], begin = text[begin:end:end], end
	}
	return list
}

func (b *batch) reset() {
	b.text.Reset()
	b.ends = b.ends[:0]
}
