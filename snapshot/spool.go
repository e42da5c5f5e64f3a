package snapshot

import (
	"errors"
	"fmt"
	"time"
)

// ErrSpoolLocked is wrapped by the error of a [Pass] whose spool another process, or
// another Recorder of this one, has open.
var ErrSpoolLocked = errors.New("spool is in use")

// Spool is where a [Recorder] keeps records that are not delivered yet. Records are
// appended to files of some MiB, each with a checksum, and synced before Recorder goes
// on; a file is removed once its records are delivered. A process that is killed, at
// whatever point, loses no record that was appended, and delivers at most the records
// of one file twice.
//
// One Recorder at a time uses a folder. A second one delivers without it, reports
// [ErrSpoolLocked], and takes the folder over when it is free. Two kinds of records need
// two folders.
type Spool struct {
	// Dir is the folder. It is created, with access for its owner only. Required.
	Dir string
	// MaxBytes bounds the size of the files. For a new record the oldest file is
	// dropped. Default 256 MiB; at least 4 KiB.
	MaxBytes int64
	// MaxAge bounds the age of a record, by the clock. Default 24 h.
	MaxAge time.Duration
}

const (
	defaultSpoolBytes = 256 << 20
	minSpoolBytes     = 4 << 10
	defaultSpoolAge   = 24 * time.Hour
)

func (s *Spool) validate() error {
	switch {
	case s.Dir == "":
		return errors.New("snapshot: Spool.Dir: is required")
	case s.MaxBytes != 0 && s.MaxBytes < minSpoolBytes:
		return fmt.Errorf("snapshot: Spool.MaxBytes: is %d, must be 0 (%d default) or at least %d", s.MaxBytes, defaultSpoolBytes, minSpoolBytes)
	case s.MaxAge < 0:
		return fmt.Errorf("snapshot: Spool.MaxAge: is %v, must be 0 (%v default) or more", s.MaxAge, defaultSpoolAge)
	}
	return nil
}
