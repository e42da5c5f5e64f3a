package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// journal is an open [Spool]: a list of segments, the oldest first. Records are appended
// to the last one and read from the first. It has one user at a time.
type journal struct {
	dir      string
	maxBytes int64
	maxAge   time.Duration
	unlock   func() error

	segments []*segment
	active   *os.File // the last segment, nil: the next append begins one
	number   uint64   // of the next segment
	reading  reading
	lost     int
}

// reading is what of the first segment was handed out last, and where it ends.
type reading struct {
	records int
	end     int64
}

const (
	segmentSuffix = ".spool"
	lockName      = "lock"
	// maxSegment is the size at which a segment is full.
	maxSegment = 4 << 20
)

// openJournal takes the lock of the folder, and reads its segments.
func openJournal(s *Spool) (*journal, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockFile(filepath.Join(s.Dir, lockName))
	if err != nil {
		return nil, err
	}
	j := &journal{
		dir: s.Dir, maxBytes: cmp.Or(s.MaxBytes, defaultSpoolBytes), maxAge: cmp.Or(s.MaxAge, defaultSpoolAge),
		unlock: unlock, number: 1,
	}
	if err := j.scan(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return j, nil
}

// scan reads the segments of the folder. Other files are left alone.
func (j *journal) scan() error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, ok := strings.CutSuffix(entry.Name(), segmentSuffix)
		number, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil || number == math.MaxUint64 || !entry.Type().IsRegular() {
			continue
		}
		s := &segment{path: filepath.Join(j.dir, entry.Name()), number: number}
		if err := s.scan(); err != nil {
			return err
		}
		j.segments = append(j.segments, s)
		j.number = max(j.number, number+1)
	}
	slices.SortFunc(j.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// append writes the records and syncs them. With an error none of them counts as
// written.
func (j *journal) append(records []json.RawMessage, now time.Time) error {
	var text []byte
	for _, record := range records {
		text = appendFrame(text, record, now)
	}
	size := int64(len(text))
	if size > j.maxBytes {
		return fmt.Errorf("%d records take %d bytes, the spool %d", len(records), size, j.maxBytes)
	}
	if err := j.makeRoom(size, now); err != nil {
		return err
	}
	// A segment is a sixteenth of the spool at most: that much is dropped at once.
	full := min(maxSegment, j.maxBytes/16)
	if j.active != nil && j.last().bytes+size > full {
		if err := j.finish(); err != nil {
			return err
		}
	}
	if j.active == nil {
		if err := j.begin(); err != nil {
			return err
		}
	}
	s := j.last()
	_, err := j.active.WriteAt(text, s.bytes)
	if err == nil {
		err = j.active.Sync()
	}
	if err != nil {
		// What was written of it is cut off; where that fails too, a reader takes it
		// for records, or for damage. The file is not written again.
		return errors.Join(err, j.active.Truncate(s.bytes), j.finish())
	}
	s.bytes, s.records, s.newest = s.bytes+size, s.records+len(records), now
	return nil
}

// makeRoom drops the oldest segments, for age and for size.
func (j *journal) makeRoom(size int64, now time.Time) error {
	for len(j.segments) > 0 && (j.size()+size > j.maxBytes || now.Sub(j.segments[0].newest) > j.maxAge) {
		j.lost += j.segments[0].records
		j.segments[0].records = 0 // also when it cannot be removed now
		if err := j.remove(); err != nil {
			return err
		}
	}
	return nil
}

// next returns the oldest records that are not delivered, none if there are none. They
// are valid until the next call, and returned again until [journal.delivered].
func (j *journal) next(maxRecords, maxBytes int, now time.Time) ([]json.RawMessage, error) {
	for len(j.segments) > 0 {
		s := j.segments[0]
		data, err := s.rest()
		if err != nil {
			return nil, err
		}
		begin, size := s.read, 0
		var records []json.RawMessage
		j.reading = reading{}
		for length, f := range frames(data) {
			end := begin + int64(length)
			if lost := f.record == nil || now.Sub(f.at) > j.maxAge; lost && len(records) == 0 {
				j.lost++
				s.skip(end, f.record != nil)
				continue
			} else if lost {
				break // it is the first next time
			}
			size += len(f.record) + 1
			if len(records) == maxRecords || len(records) > 0 && size > maxBytes {
				break
			}
			records = append(records, f.record)
			j.reading = reading{len(records), end}
		}
		if len(records) > 0 {
			return records, nil
		}
		if err := j.remove(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// delivered records that what next returned need not be kept.
func (j *journal) delivered() error {
	if len(j.segments) == 0 || j.reading.records == 0 {
		return nil
	}
	s := j.segments[0]
	s.read = j.reading.end
	s.records -= j.reading.records
	j.reading = reading{}
	if s.read < s.bytes {
		return nil
	}
	return j.remove()
}

// remove removes the first segment.
func (j *journal) remove() error {
	j.reading = reading{}
	s := j.segments[0]
	s.read = s.bytes
	if len(j.segments) == 1 {
		if err := j.finish(); err != nil {
			return err
		}
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	j.segments = j.segments[1:]
	return nil
}

// begin begins a segment. Its name is on disk before its content.
func (j *journal) begin() error {
	path := filepath.Join(j.dir, fmt.Sprintf("%016d%s", j.number, segmentSuffix))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s := &segment{path: path, number: j.number}
	j.number++
	if err := syncDir(j.dir); err != nil {
		return errors.Join(err, file.Close(), os.Remove(path))
	}
	j.segments, j.active = append(j.segments, s), file
	return nil
}

// finish closes the file that is appended to.
func (j *journal) finish() error {
	if j.active == nil {
		return nil
	}
	err := j.active.Close()
	j.active = nil
	return err
}

func (j *journal) close() error { return errors.Join(j.finish(), j.unlock()) }

func (j *journal) last() *segment { return j.segments[len(j.segments)-1] }

func (j *journal) size() (n int64) {
	for _, s := range j.segments {
		n += s.bytes
	}
	return n
}

// pending returns the number of records that are not delivered, and the size of the
// files.
func (j *journal) pending() (records int, bytes int64) {
	for _, s := range j.segments {
		records += s.records
	}
	return records, j.size()
}

// takeLost returns how many records were lost since the last call.
func (j *journal) takeLost() int {
	n := j.lost
	j.lost = 0
	return n
}

func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
