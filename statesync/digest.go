package statesync

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Digest is the sum of the hashes of a set of items: the same items give the same
// digest, in whatever order they came and whatever was removed in between. A server can
// state at any moment which set a reader must have, and both keep their digest up to
// date at the price of one hash for each change.
//
// An item's hash is SHA-256 over its collection, ID and version, and hashes are
// added as four 64-bit words each. A digest finds lost, doubled and outdated
// items; it is no protection against forgery.
//
// The zero Digest is unset. The digest of the empty set is DigestOf(nil); Add and
// Remove keep it up to date as the set changes.
type Digest [4]uint64

// empty is the digest of no items: SHA-256 of "trueup statesync".
var empty = sha256.Sum256([]byte("trueup statesync")) //nolint:gochecknoglobals // a constant

// Add adds an item to the set of the digest. DigestOf(nil) and one Add for each item,
// in any order, give the DigestOf of the items. Add is the inverse of Remove. It reads
// the key and the version of the item. A tombstone changes nothing, as in [DigestOf].
func (d *Digest) Add(i Item) {
	if !i.Deleted {
		d.add(i)
	}
}

// Remove removes an item from the set of the digest. It is the inverse of Add, in
// either order. The set must have the item in this version: otherwise d becomes
// meaningless. A tombstone changes nothing.
func (d *Digest) Remove(i Item) {
	if !i.Deleted {
		d.remove(i)
	}
}

// add and remove are Add and Remove for a live item.
func (d *Digest) add(i Item) {
	for n, word := range hash(i) {
		d[n] += word
	}
}

func (d *Digest) remove(i Item) {
	for n, word := range hash(i) {
		d[n] -= word
	}
}

// merge adds all items of other.
func (d *Digest) merge(other Digest) {
	for n, word := range other {
		d[n] += word
	}
}

// sealed returns the digest of the added items.
func (d Digest) sealed() Digest {
	d.merge(words(empty))
	return d
}

func hash(i Item) [4]uint64 {
	var space [128]byte
	text := append(space[:0], i.Collection...)
	text = append(append(text, 0), i.ID...)
	text = binary.BigEndian.AppendUint64(append(text, 0), i.Version)
	return words(sha256.Sum256(text))
}

func words(sum [sha256.Size]byte) (words [4]uint64) {
	for n := range words {
		words[n] = binary.BigEndian.Uint64(sum[8*n:])
	}
	return words
}

// DigestOf returns the digest and the number of the items that are not deleted.
func DigestOf(items []Item) (d Digest, count int) {
	for _, i := range items {
		if !i.Deleted {
			d.add(i)
			count++
		}
	}
	return d.sealed(), count
}

// String returns 64 hexadecimal digits.
func (d Digest) String() string {
	var bytes [32]byte
	for n, word := range d {
		binary.BigEndian.PutUint64(bytes[8*n:], word)
	}
	return hex.EncodeToString(bytes[:])
}

// MarshalText returns the text of String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the text of MarshalText.
func (d *Digest) UnmarshalText(text []byte) error {
	var bytes [32]byte
	if len(text) != hex.EncodedLen(len(bytes)) {
		return fmt.Errorf("digest: has %d characters, not %d", len(text), hex.EncodedLen(len(bytes)))
	}
	if _, err := hex.Decode(bytes[:], text); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	*d = words(bytes)
	return nil
}
