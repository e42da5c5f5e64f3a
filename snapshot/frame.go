package snapshot

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"iter"
	"time"
)

// A frame is one record on disk: a mark, whose last byte is the version; the length of
// the record; the time it was written, in milliseconds since 1970; the CRC-32C of
// length, time and record; the record. Numbers are little-endian. No record contains the
// mark: in JSON the control character 1 is escaped.
const (
	frameMark   = "\x9ets\x01"
	frameHeader = len(frameMark) + 4 + 8 + 4
	// maxFrame is the size of a record above which a length is taken for damage.
	maxFrame = 64 << 20
)

// frame is a record that was read, and where it ends.
type frame struct {
	at     time.Time
	record []byte
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func appendFrame(to, record []byte, at time.Time) []byte {
	to = append(to, frameMark...)
	begin := len(to)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(record))) //nolint:gosec // a batch is bounded
	to = binary.LittleEndian.AppendUint64(to, uint64(at.UnixMilli()))
	sum := crc32.Update(crc32.Checksum(to[begin:], castagnoli()), castagnoli(), record)
	to = binary.LittleEndian.AppendUint32(to, sum)
	return append(to, record...)
}

// readFrame reads the frame at the begin of data, and returns its size. It is not ok if
// there is none that is whole.
func readFrame(data []byte) (f frame, size int, ok bool) {
	if len(data) < frameHeader || string(data[:len(frameMark)]) != frameMark {
		return frame{}, 0, false
	}
	head := data[len(frameMark):frameHeader]
	length := binary.LittleEndian.Uint32(head)
	if length > maxFrame || int(length) > len(data)-frameHeader {
		return frame{}, 0, false
	}
	record := data[frameHeader : frameHeader+int(length)]
	sum := crc32.Update(crc32.Checksum(head[:12], castagnoli()), castagnoli(), record)
	if sum != binary.LittleEndian.Uint32(head[12:]) {
		return frame{}, 0, false
	}
	at := time.UnixMilli(int64(binary.LittleEndian.Uint64(head[4:])))
	return frame{at, record}, frameHeader + int(length), true
}

// frames yields the frames in data, each with the offset behind it. A stretch that
// cannot be read is yielded as one frame without a record; after it comes the next frame
// that is whole.
func frames(data []byte) iter.Seq2[int, frame] {
	return func(yield func(int, frame) bool) {
		for at := 0; at < len(data); {
			f, size, ok := readFrame(data[at:])
			if !ok {
				size = damaged(data[at:])
			}
			at += size
			if !yield(at, f) {
				return
			}
		}
	}
}

// damaged returns the size of the stretch at the begin of data that holds no frame.
func damaged(data []byte) int {
	for at := 1; ; at++ {
		next := bytes.Index(data[at:], []byte(frameMark))
		if next < 0 {
			return len(data)
		}
		at += next
		if _, _, ok := readFrame(data[at:]); ok {
			return at
		}
	}
}
