package snapshot

import (
	"encoding/json"
	"time"
)

// Journal is an open spool.
type Journal struct{ j *journal }

func OpenJournal(s *Spool) (Journal, error) {
	j, err := openJournal(s)
	return Journal{j}, err
}

func (j Journal) Append(records []json.RawMessage, now time.Time) error {
	return j.j.append(records, now)
}

func (j Journal) Next(maxRecords, maxBytes int, now time.Time) ([]json.RawMessage, error) {
	return j.j.next(maxRecords, maxBytes, now)
}
func (j Journal) Delivered() error      { return j.j.delivered() }
func (j Journal) Pending() (int, int64) { return j.j.pending() }
func (j Journal) Lost() int             { return j.j.takeLost() }
func (j Journal) Close() error          { return j.j.close() }

// Frames returns the records in data, and the number of stretches that are none.
func Frames(data []byte) (records [][]byte, damaged int) {
	for _, f := range frames(data) {
		if f.record == nil {
			damaged++
		} else {
			records = append(records, f.record)
		}
	}
	return records, damaged
}

func AppendFrame(to, record []byte, at time.Time) []byte { return appendFrame(to, record, at) }

const FrameHeader = frameHeader
