package controltest

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

const (
	envelope = 5 // of a message of a stream: flags and length
	last     = 2 // the flag of its last message, which is JSON
)

func enveloped(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...) //nolint:gosec // it is small
}

// end is the last message of a stream: with an error, unless the code is 0.
func end(code connect.Code, text string) []byte {
	if code == 0 {
		return enveloped(last, []byte(`{}`))
	}
	return enveloped(last, []byte(`{"error":`+text+`}`))
}

// body is the body of a stream.
type body struct {
	io.ReadCloser

	liar               *Liar
	method, collection string
	orders             int
	ready              []byte
	over               bool

	mu  sync.Mutex
	end []byte // with which it was cut
}

func (b *body) cut(code connect.Code) {
	b.mu.Lock()
	b.end = end(code, Refusal{Code: code}.text())
	b.mu.Unlock()
	_ = b.ReadCloser.Close() // wakes its reader
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.liar.do(func() { delete(b.liar.open, b) })
	return b.ReadCloser.Close()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.over {
			return 0, io.EOF
		}
		err := b.next()
		b.mu.Lock()
		if b.end != nil {
			b.ready, b.over, err = b.end, true, nil
		}
		b.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// next makes ready what comes of the next message.
func (b *body) next() error {
	head := make([]byte, envelope)
	if _, err := io.ReadFull(b.ReadCloser, head); err != nil {
		return err
	}
	content := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(b.ReadCloser, content); err != nil {
		return err
	}
	if head[0] == last {
		b.ready = slices.Concat(head, content)
		return nil
	}
	m := ctrlv1.NewMessage(b.collection)
	if err := proto.Unmarshal(content, m); err != nil {
		return err
	}
	order, _ := ctrlv1.Carried(m)
	told, err := []ctrlv1.Message{m}, error(nil)
	var lie Lie
	b.liar.do(func() { lie = b.liar.faults.Lie })
	if lie != nil {
		told, err = lie(m, b.orders)
	}
	if order != nil {
		b.orders++
	}
	for _, each := range told {
		if order, _ := ctrlv1.Carried(each); order != nil {
			b.liar.do(func() { b.liar.counts["sent "+b.method]++ })
		}
		content, _ := proto.Marshal(each) // it is valid
		b.ready = append(b.ready, enveloped(0, content)...)
	}
	if errors.Is(err, io.EOF) {
		b.ready, b.over, err = append(b.ready, end(0, "")...), true, nil
	}
	return err
}
