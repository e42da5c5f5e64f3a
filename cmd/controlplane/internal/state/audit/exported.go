package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

var (
	// ErrNoEntry is a text without an entry of an audit.
	ErrNoEntry = errors.New("has no entry of an audit; want the lines that --audit-log of the control plane has written")
	// ErrOtherAudit is an export with entries of another control plane only.
	ErrOtherAudit = errors.New("has no entry of the control plane of this database")
)

// Restored is the actor of the command that is run after a database was put back.
const Restored = "command/restored"

// maxLine bounds a line of an export, which has no values. Longer ones are of another kind.
const maxLine = 64 << 10

// Exported is what an export has about tokens of agents.
type Exported struct {
	// Entries is how many entries were read, of all logs. First and Last are the times of the
	// oldest and the newest.
	Entries     int
	First, Last time.Time

	ids     []string
	objects map[object]bool
	marks   map[string]bool
	// unmarked has the ends of tokens by a version that did not write which token it was.
	unmarked []Entry
	ended    map[object]bool // the part of unmarked that the database does not have
}

type object struct{ kind, name string }

// ReadExport reads what [Export] has written. A line may have the prefix of a container
// runtime (CRI), or be wrapped in JSON by Docker. Lines of another kind are passed over. The
// error wraps [ErrNoEntry] if all are.
func ReadExport(export io.Reader) (*Exported, error) {
	x := &Exported{objects: map[object]bool{}, marks: map[string]bool{}, ended: map[object]bool{}}
	lines := bufio.NewReaderSize(export, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if e, ok := parse(line); ok && !long {
			x.add(e)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("export of the audit: %w", err)
		}
	}
	if x.Entries == 0 {
		return nil, ErrNoEntry
	}
	return x, nil
}

// parse returns the entry of a line.
func parse(line []byte) (e Entry, ok bool) {
	begin := bytes.IndexByte(line, '{')
	if begin < 0 {
		return Entry{}, false
	}
	line = line[begin:]
	var kind struct {
		Message string `json:"msg"`
		Log     string `json:"log"`
	}
	if json.Unmarshal(line, &kind) != nil {
		// What a full disk has cut is before the next entry.
		if begin = bytes.LastIndex(line, []byte(`{"msg":"`+message+`"`)); begin < 0 || json.Unmarshal(line[begin:], &kind) != nil {
			return Entry{}, false
		}
		line = line[begin:]
	}
	if kind.Message == "" && len(kind.Log) > 0 && kind.Log[0] == '{' {
		// Docker.
		line = []byte(kind.Log)
		kind.Log = ""
		if json.Unmarshal(line, &kind) != nil {
			return Entry{}, false
		}
	}
	if kind.Message != message || json.Unmarshal(line, &e) != nil {
		return Entry{}, false
	}
	return e, idPattern.MatchString(e.ID) && slices.Contains(Logs(), e.Log) && slices.Contains(Kinds(), e.Kind)
}

func (x *Exported) add(e Entry) {
	x.Entries++
	if x.First.IsZero() || e.At.Before(x.First) {
		x.First = e.At
	}
	if e.At.After(x.Last) {
		x.Last = e.At
	}
	x.ids = append(x.ids, e.ID)
	if e.Kind != KindCluster && e.Kind != KindRegion {
		return
	}
	x.objects[object{e.Kind, e.Name}] = true
	switch {
	case e.Ended != "":
		x.marks[e.Ended] = true
	case e.Log == Changes && e.Actor != Restored && (e.Verb == "rotate-token" || e.Outcome == Deleted):
		x.unmarked = append(x.unmarked, e)
	}
}

// Compare looks for the entries in the database, which was put back. The error wraps
// [ErrOtherAudit] if it has none of them, and no cluster or region that one is about.
func (x *Exported) Compare(ctx context.Context, database *db.Database) error {
	known, oldest, ours := map[string]bool{}, "", false
	err := database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, log FROM audit`)
		_, err = db.Collect(rows, err, func(rows *sql.Rows, _ *struct{}) error {
			var id, log string
			err := rows.Scan(&id, &log)
			known[id] = true
			if log == Changes {
				oldest = min(cmp.Or(oldest, id), id)
			}
			return err
		})
		if err != nil {
			return err
		}
		rows, err = tx.QueryContext(ctx, `SELECT 'cluster', id FROM clusters UNION ALL SELECT 'region', id FROM regions`)
		_, err = db.Collect(rows, err, func(rows *sql.Rows, o *object) error {
			err := rows.Scan(&o.kind, &o.name)
			ours = ours || x.objects[*o]
			return err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if !ours && !slices.ContainsFunc(x.ids, func(id string) bool { return known[id] }) {
		return ErrOtherAudit
	}
	for _, e := range x.unmarked {
		// What is older than all that the database has was removed from it.
		if !known[e.ID] && e.ID > oldest {
			x.ended[object{e.Kind, e.Name}] = true
		}
	}
	return nil
}

// Ended reports whether the token of a cluster or region with that mark (tokens.Mark) was
// rotated or revoked, or its owner deleted: an entry says so of this very token. So neither
// the clocks of replicas matter, nor what became of the token in a state of the database that
// was given up. An entry of a version that wrote no marks counts for the owner if the
// database does not have it.
func (x *Exported) Ended(kind, name, mark string) bool {
	return x.marks[mark] || x.ended[object{kind, name}]
}
