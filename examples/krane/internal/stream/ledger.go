package stream

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// ledger is what a reader has at a cursor: the version of each live item, and
// the digest of them all.
type ledger struct {
	cursor statesync.Cursor
	live   map[string]uint64
	sum    statesync.Digest
}

func newLedger() *ledger { return &ledger{live: map[string]uint64{}} }

func (l *ledger) put(i statesync.Item) {
	if version, ok := l.live[i.ID]; ok {
		old := hashOf(statesync.Item{Key: i.Key, Version: version})
		for n := range l.sum {
			l.sum[n] -= old[n]
		}
		delete(l.live, i.ID)
	}
	if i.Deleted {
		return
	}
	l.live[i.ID] = i.Version
	more := hashOf(i)
	for n := range l.sum {
		l.sum[n] += more[n]
	}
}

// hashOf returns what one live item adds to a digest.
func hashOf(i statesync.Item) statesync.Digest {
	with, _ := statesync.DigestOf([]statesync.Item{{Key: i.Key, Version: i.Version}})
	without, _ := statesync.DigestOf(nil)
	for n := range with {
		with[n] -= without[n]
	}
	return with
}

// digest returns what statesync.DigestOf returns for the live items.
func (l *ledger) digest() statesync.Digest {
	d, _ := statesync.DigestOf(nil)
	for n := range d {
		d[n] += l.sum[n]
	}
	return d
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
	_, _ = fmt.Fprintf(t.hash, "%s %d %s\n", e.id, e.version, verb) // a hash takes everything
}
