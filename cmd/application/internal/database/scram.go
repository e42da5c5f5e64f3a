package database

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// NewPassword returns 32 random bytes in hexadecimal digits.
func NewPassword() string {
	var random [32]byte
	rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

// verifier returns what a server keeps of a password (SCRAM-SHA-256, RFC 5803): a
// statement, and so the server's log, never has the password itself.
func verifier(password string) (string, error) {
	const iterations = 4096
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]), encode(sum(salted, "Server Key"))), nil
}
