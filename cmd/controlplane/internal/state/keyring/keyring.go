// Package keyring encrypts values that are kept, under keys that can be changed.
package keyring

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// ErrNoKeys means that there is no key to encrypt with.
	ErrNoKeys = errors.New("there are no keys")
	// ErrUnknownKey is a value under a key that the ring does not have.
	ErrUnknownKey = errors.New("unknown key")
)

// keyBytes is the length of a key: AES-256.
const keyBytes = 32

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Ring encrypts with its first key, and decrypts with each of them: AES-256-GCM with a
// random nonce. It makes checksums with a key that is derived from the first. The zero value
// and nil have no keys. It is safe for concurrent use.
type Ring struct {
	current string
	keys    map[string]key
}

type key struct {
	aead cipher.AEAD
	mac  []byte // derived, for HMAC
}

// Parse reads keys, one a line: an id, a space, and 32 random bytes in base64. The first
// encrypts. Empty lines and those that begin with # do not count. An error names the line
// and never repeats what is in it.
func Parse(text string) (*Ring, error) {
	r := &Ring{keys: map[string]key{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 || !idPattern.MatchString(fields[0]) {
			return nil, fmt.Errorf("line %d: want an id of letters, digits, ., _ and -, a space, and a key in base64", n)
		}
		secret, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil || len(secret) != keyBytes {
			// Without the id: it may be the key, if the two were swapped.
			return nil, fmt.Errorf("line %d: the key is not %d bytes in base64, as openssl rand -base64 %d makes them", n, keyBytes, keyBytes)
		}
		if r.keys[fields[0]].aead != nil {
			return nil, fmt.Errorf("line %d: the key %s is there twice", n, fields[0])
		}
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		r.keys[fields[0]] = key{aead, mac(secret, "trueup mac")}
		if r.current == "" {
			r.current = fields[0]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if r.current == "" {
		return nil, ErrNoKeys
	}
	return r, nil
}

// Current returns the id of the key that encrypts, empty without keys.
func (r *Ring) Current() string {
	if r == nil {
		return ""
	}
	return r.current
}

// IDs returns the ids of all keys, in no order.
func (r *Ring) IDs() []string {
	if r == nil {
		return nil
	}
	return slices.Collect(maps.Keys(r.keys))
}

// MAC returns 64 hexadecimal digits that change with text and with what it is about: its
// HMAC-SHA-256 under the first key. Without the key they reveal nothing about text, however
// short it is.
func (r *Ring) MAC(text, about string) (string, error) {
	if r.Current() == "" {
		return "", ErrNoKeys
	}
	return hex.EncodeToString(mac(r.keys[r.current].mac, about+"\n"+text)), nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

// Seal encrypts value, and returns the id of the key as well. What it is about is not in
// the result; [Ring.Open] needs the same.
func (r *Ring) Seal(value, about string) (key, sealed string, err error) {
	if r.Current() == "" {
		return "", "", ErrNoKeys
	}
	return r.current, base64.StdEncoding.EncodeToString(r.keys[r.current].aead.Seal(nil, nil, []byte(value), []byte(about))), nil
}

// Open decrypts what [Ring.Seal] has returned.
func (r *Ring) Open(key, sealed, about string) (string, error) {
	if r.Current() == "" {
		return "", ErrNoKeys
	}
	aead := r.keys[key].aead
	if aead == nil {
		return "", fmt.Errorf("%w: %s", ErrUnknownKey, key)
	}
	text, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return "", fmt.Errorf("value of %s: %w", about, err)
	}
	value, err := aead.Open(nil, nil, text, []byte(about))
	if err != nil {
		return "", fmt.Errorf("value of %s under key %s: %w", about, key, err)
	}
	return string(value), nil
}
