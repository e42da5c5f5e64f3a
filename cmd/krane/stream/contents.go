package stream

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// contents are what a reader has at a cursor: the version of each live item, and
// the digest of all.
type contents struct {
	cursor statesync.Cursor
	live   map[string]uint64
	digest statesync.Digest
}

func newContents() *contents {
	empty, _ := statesync.DigestOf(nil)
	return &contents{live: map[string]uint64{}, digest: empty}
}

func (l *contents) put(i statesync.Item) {
	if version, ok := l.live[i.ID]; ok {
		l.digest.Remove(statesync.Item{Key: i.Key, Version: version})
		delete(l.live, i.ID)
	}
	if !i.Deleted {
		l.digest.Add(i)
		l.live[i.ID] = i.Version
	}
}

// transcript is the digest of a stream's messages, as Synced states it.
type transcript struct {
	count uint64
	hash  hash.Hash
}

func newTranscript() *transcript { return &transcript{hash: sha256.New()} }

func (t *transcript) add(e event) {
	verb := "apply"
	if e.deleted {
		verb = "delete"
	}
	t.count++
	_, _ = fmt.Fprintf(t.hash, "%s %d %s\n", e.id, e.version, verb) // a hash never fails
}
