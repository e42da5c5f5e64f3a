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
	"net/http"
	"strings"
)

// MinBytes is the length below which a token that an operator chose is refused
// as a mistake.
const MinBytes = 16

// ErrUnknown is a token that is not, or no longer, valid.
var ErrUnknown = errors.New("unknown token")

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

// Same compares two tokens. The time it takes depends on their lengths alone.
func Same(a, b string) bool { return sameHash(Hash(a), Hash(b)) }

func sameHash(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Bearer returns the token of the header Authorization; ok is false without a
// header, for another scheme, and for an empty token.
func Bearer(header http.Header) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
