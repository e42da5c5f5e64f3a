package diff

import (
	"encoding/hex"
	"fmt"
)

// Sum is 128 bits of a SHA-256: the result of [Digest] and [Hash]. Sums are
// comparable; the zero Sum stands for "none" and is never the result of
// hashing.
type Sum [16]byte

// String returns the sum as 32 hexadecimal digits, the form that [ParseSum]
// reads.
func (s Sum) String() string {
	return hex.EncodeToString(s[:])
}

// ParseSum reads the form that [Sum.String] writes. Anything else gives false.
func ParseSum(text string) (Sum, bool) {
	var s Sum
	if len(text) != hex.EncodedLen(len(s)) {
		return Sum{}, false
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return Sum{}, false
	}
	return s, true
}

// MarshalText writes the form of [Sum.String].
func (s Sum) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText reads it.
func (s *Sum) UnmarshalText(text []byte) error {
	sum, ok := ParseSum(string(text))
	if !ok {
		return fmt.Errorf("sum %q: want %d hexadecimal digits", text, hex.EncodedLen(len(s)))
	}
	*s = sum
	return nil
}
