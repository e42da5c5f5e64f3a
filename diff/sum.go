package diff

import "encoding/hex"

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
