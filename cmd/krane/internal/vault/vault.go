// Package vault decrypts the environment variables of deployments: with a vault
// service ([Service]) or with keys in a file ([KeyFile]).
//
// A ciphertext belongs to a keyring, which is the id of the environment, and is
// refused under any other. What comes out is a JSON object whose values are all
// strings, the variables by name ([Variables]):
//
//	{"DATABASE_URL":"postgres://...","GREETING":"hello"}
//
// Neither keys, tokens, ciphertexts nor variables appear in an error, and the
// package does not log.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Decrypter turns a ciphertext of a keyring into the plaintext. It is safe for
// concurrent use.
type Decrypter interface {
	Decrypt(ctx context.Context, keyring string, ciphertext []byte) ([]byte, error)
}

// ErrRefused marks an error that the same request will meet again: the
// ciphertext is not one, or belongs to another keyring or key.
var ErrRefused = errors.New("cannot be decrypted")

// None refuses to decrypt. It is used where no vault is configured.
type None struct{}

// Decrypt implements Decrypter.
func (None) Decrypt(context.Context, string, []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: no vault is configured", ErrRefused)
}

// Variables parses the decrypted text. Empty text and the JSON null are no
// variables: the map is empty and not nil. A name that is stated twice, and a
// value that is no string, are errors that wrap ErrRefused.
func Variables(plaintext []byte) (map[string]string, error) {
	variables := map[string]string{}
	if trimmed := bytes.TrimSpace(plaintext); len(trimmed) == 0 || string(trimmed) == "null" {
		return variables, nil
	}
	// By hand, because the errors of the decoder show what it read.
	decoder := json.NewDecoder(bytes.NewReader(plaintext))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errForm
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, errForm
		}
		v, err := decoder.Token()
		if err != nil {
			return nil, errForm
		}
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%w: the value of variable %q is not a string", ErrRefused, name)
		}
		key, _ := name.(string)
		if _, twice := variables[key]; twice {
			return nil, fmt.Errorf("%w: variable %q is stated twice", ErrRefused, key)
		}
		variables[key] = text
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errForm
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errForm
	}
	return variables, nil
}

var errForm = fmt.Errorf("%w: what was decrypted is not a JSON object of strings", ErrRefused)
