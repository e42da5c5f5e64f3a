package kube

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// Limits of [Name] for the kinds of Kubernetes. A controller that appends to the
// name allows less: the name of a CronJob has at most 52 bytes, for example.
const (
	// LabelLimit is the limit of a DNS label: Services, Namespaces, host names and
	// values of labels.
	LabelLimit = 63
	// SubdomainLimit is the limit of a DNS subdomain: most other kinds.
	SubdomainLimit = 253
)

// Name makes a name of at most limit bytes from any number of parts. The same parts
// give the same name, and different parts give different names. The name is a valid
// DNS label except for its length: it consists of a-z, 0-9 and -, and begins and
// ends with a letter or digit. (The name of a Service must begin with a letter:
// begin with a part that does.)
//
// The parts are joined by hyphens. The result is the name if the parts can be read
// from it: each part is not empty and consists of a-z and 0-9, the whole is not
// longer than limit, and the last part does not look like a tail. In all other
// cases the name ends in a tail. These are a part with a hyphen ("a-b","c" and
// "a","b-c" would be the same), a capital letter, a dot or another character, an
// empty part, no part at all, and a name that must be cut. The tail is a hyphen and
// 13 characters, of b-z without vowels and 2-9 without 3, which encode 61 bits of a
// SHA-256 of the parts. It follows as much of the parts as fits, in lower case, with
// a hyphen for each character that a name cannot hold.
//
// A limit below 13 cuts the tail itself. Zero or less means [LabelLimit].
func Name(limit int, parts ...string) string {
	if limit <= 0 {
		limit = LabelLimit
	}
	joined := strings.Join(parts, "-")
	if len(joined) <= limit && separable(parts) {
		return joined
	}
	tail := nameTail(parts)
	room := limit - len(tail) - 1
	if room <= 0 {
		return tail[:min(limit, len(tail))]
	}
	head := strings.TrimLeft(strings.Map(nameByte, joined), "-")
	head = strings.TrimRight(head[:min(room, len(head))], "-")
	if head == "" {
		return tail
	}
	return head + "-" + tail
}

// separable reports whether parts joined by hyphens can be separated again, and
// cannot be mistaken for a name with a tail.
func separable(parts []string) bool {
	for _, part := range parts {
		if part == "" || strings.TrimLeft(part, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	if len(parts) == 0 {
		return false
	}
	last := parts[len(parts)-1]
	return len(last) != tailLength || strings.TrimLeft(last, tailBytes) != ""
}

func nameByte(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
		return r
	case r >= 'A' && r <= 'Z':
		return r - 'A' + 'a'
	default:
		return '-'
	}
}

// The tail has no vowels, so that no word is taken for a tail and no tail forms a
// word.
const (
	tailBytes  = "bcdfghjklmnpqrstvwxz2456789"
	tailLength = 13
)

// nameTail hashes the parts, each after its length.
func nameTail(parts []string) string {
	hash := sha256.New()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	sum := binary.BigEndian.Uint64(hash.Sum(nil))
	tail := make([]byte, tailLength)
	for i := range tail {
		tail[i] = tailBytes[sum%uint64(len(tailBytes))]
		sum /= uint64(len(tailBytes))
	}
	return string(tail)
}
