package snapshot

import (
	"errors"
	"io"
	"os"
	"time"
)

// segment is one file of a journal.
type segment struct {
	path    string
	number  uint64
	bytes   int64     // its size
	read    int64     // up to where its records are delivered
	records int       // those that are not
	newest  time.Time // when the last of them was written
}

// scan reads the size and the records of the file.
func (s *segment) scan() error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	s.bytes = info.Size()
	// A file without a record is as old as its last change.
	s.newest = info.ModTime()
	data, err := s.rest()
	if err != nil {
		return err
	}
	for _, f := range frames(data) {
		if f.record != nil {
			s.records++
			s.newest = f.at
		}
	}
	return nil
}

// rest returns the records that are not delivered.
func (s *segment) rest() (data []byte, err error) {
	if s.read >= s.bytes {
		return nil, nil
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.NewSectionReader(file, s.read, s.bytes-s.read))
}

// skip passes over what ends there: a record, or a stretch that cannot be read.
func (s *segment) skip(end int64, record bool) {
	s.read = end
	if record {
		s.records--
	}
}
