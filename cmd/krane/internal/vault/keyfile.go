package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

// KeyFile decrypts with AES-256-GCM and the keys in a file, for installations
// without a vault. The file has a key on each line, 32 bytes in base64; empty
// lines and lines that begin with # are skipped. The first key encrypts, each one
// decrypts, so that a new key is put before the old ones. The file is read again
// each time.
//
// A ciphertext is a random nonce of 12 bytes followed by what GCM seals, with the
// keyring as additional data.
type KeyFile struct {
	// Path is the path of the file. Required.
	Path string
}

const keySize = 32

// Decrypt implements Decrypter.
func (f *KeyFile) Decrypt(_ context.Context, keyring string, ciphertext []byte) ([]byte, error) {
	keys, err := f.keys()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		plaintext, err := key.Open(nil, nil, ciphertext, []byte(keyring))
		if err == nil {
			return plaintext, nil
		}
	}
	return nil, fmt.Errorf("key file: %w: keyring %s: none of %d keys fits", ErrRefused, keyring, len(keys))
}

// Encrypt is what Decrypt undoes.
func (f *KeyFile) Encrypt(keyring string, plaintext []byte) ([]byte, error) {
	keys, err := f.keys()
	if err != nil {
		return nil, err
	}
	return keys[0].Seal(nil, nil, plaintext, []byte(keyring)), nil
}

// NewKey returns a line for a key file.
func NewKey() string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key) + "\n"
}

// Check returns an error unless the file holds keys now. It never shows a key.
func (f *KeyFile) Check() error {
	_, err := f.keys()
	return err
}

// keys returns at least one.
func (f *KeyFile) keys() ([]cipher.AEAD, error) {
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	var keys []cipher.AEAD
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keySize { // the error would show a part of it
			return nil, fmt.Errorf("key file: %s:%d: want %d bytes in base64", f.Path, n, keySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, errors.New("key file: not a key of AES")
		}
		sealer, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		keys = append(keys, sealer)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("key file: %s: holds no key", f.Path)
	}
	return keys, nil
}
