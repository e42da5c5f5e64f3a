package db

import (
	"fmt"
	"os"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/filelock"
)

// Alone reports whether no other process that has called it has this SQLite file open. It holds the lock of a file
// beside it, of the same name with -lock, until Close or the end of the process; that file has no content and
// stays. Two that write one file lose nothing, but neither announces the changes of the other at once. A PostgreSQL
// is for several: it is always alone. So is a file where the system has no locks. Call it at most once.
func (d *Database) Alone() (alone bool, err error) {
	if d.path == "" {
		return true, nil
	}
	file, err := os.OpenFile(d.path+"-lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, fmt.Errorf("lock of the database: %w", err)
	}
	alone, err = filelock.Take(file)
	if err != nil || !alone {
		_ = file.Close()
		if err != nil {
			err = fmt.Errorf("lock of the database %s: %w", file.Name(), err)
		}
		return false, err
	}
	d.held = file
	return true, nil
}
