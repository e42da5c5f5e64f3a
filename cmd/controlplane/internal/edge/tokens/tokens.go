// Package tokens makes, hashes, checks and rotates the credentials of agents and
// administrators.
//
// A token is 32 random bytes as text, and is shown once. The database has its
// plain SHA-256: the token has so much entropy that the hash does not help to
// guess it, and a slow hash would only slow each request down.
package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
)

// MinBytes is the length below which a token that an operator chose is refused
// as a mistake.
const MinBytes = 16

// ErrUnknown is a token that is not, or no longer, valid.
var ErrUnknown = errors.New("unknown token")

// fingerprintSize is the length of a [Fingerprint].
const fingerprintSize = 8

// minBits is the entropy below which a token that an operator chose can be guessed.
const minBits = 128

// Weak returns why a token that an operator chose can be guessed, nil if it can not: if
// it was drawn at random from the characters that it consists of, it has at least 128
// bits. Words are not recognised. The error does not repeat the token.
func Weak(token string) error {
	if len(token) < MinBytes {
		return fmt.Errorf("it has %d bytes, at least %d are needed", len(token), MinBytes)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("it has spaces or characters outside ASCII")
	}
	size := alphabet(token)
	if bits := float64(period(token)) * math.Log2(size); bits < minBits {
		return fmt.Errorf(
			"its %d characters of an alphabet of %.0f have %.0f bits of entropy at most, %d are needed: make one with openssl rand -hex 32",
			len(token),
			size,
			bits,
			minBits,
		)
	}
	return nil
}

// alphabet returns the size of the smallest character set that has all characters of the token.
func alphabet(token string) float64 {
	only := func(set string) bool { return strings.Trim(token, set) == "" }
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, set := range []string{digits, digits + "abcdef", digits + "ABCDEF", lower, upper, lower + digits, upper + digits, lower + upper, lower + upper + digits, lower + upper + digits + "-_+/="} {
		if only(set) {
			return float64(len(set))
		}
	}
	return '~' - ' '
}

// period returns the length of the shortest text that the token is a repetition of.
func period(token string) int {
	return strings.Index((token + token)[1:], token) + 1
}

// New returns a token and its hash.
func New() (token, hash string) {
	const size = 32
	secret := make([]byte, size)
	// Read never fails and fills the whole slice; see crypto/rand.
	_, _ = rand.Read(secret)
	token = base64.RawURLEncoding.EncodeToString(secret)
	return token, Hash(token)
}

// Hash returns what the database has of a token.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Mark returns 16 characters that name the token of an agent with this hash in exports of the
// audit. They come from a hash that has no other use.
func Mark(hash string) string {
	const size = 16
	return Hash("trueup agent " + hash)[:size]
}

// Fingerprint returns 8 characters that name a token of administrators in logs and audits.
// They come from a hash that has no other use, so they do not help to check a guess of the
// hash in the database.
func Fingerprint(token string) string {
	return Hash("trueup administrator " + token)[:fingerprintSize]
}

// Same compares two tokens. The time it takes depends on their lengths alone.
func Same(a, b string) bool { return SameHash(Hash(a), Hash(b)) }

// SameHash compares two hashes of tokens in constant time.
func SameHash(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Bearer returns the token of the header Authorization; ok is false without a
// header, for another scheme, and for an empty token.
func Bearer(header http.Header) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
