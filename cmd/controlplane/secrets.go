package main

import (
	"crypto/tls"
	"fmt"
	"os"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// token returns the token in the file of that flag, and none without a file.
func (o options) token(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	token, err := program.ReadToken(file)
	if err != nil {
		return "", wrongFile(flag, file, err)
	}
	if err := tokens.Weak(token); err != nil {
		return "", wrong(flag, "the token in %s is weak: %w", file, err)
	}
	return token, nil
}

// keys returns the keys of var groups, nil without any.
func (o options) keys() (*keyring.Ring, error) {
	const flag = "var-group-keys-file"
	text, from := o.varGroupKeys, varGroupKeysVariable
	switch {
	case o.varGroupKeysFile != "" && text != "":
		return nil, wrong(flag, "is set beside %s, must be one of them", from)
	case o.varGroupKeysFile != "":
		content, err := os.ReadFile(o.varGroupKeysFile)
		if err != nil {
			return nil, wrong(flag, "%w", program.Unreadable(o.varGroupKeysFile, err))
		}
		keys, err := keyring.Parse(string(content))
		if err != nil {
			return nil, wrong(flag, "%s: %w", o.varGroupKeysFile, err)
		}
		return keys, nil
	case text == "":
		return nil, nil //nolint:nilnil // no keys are not an error
	}
	keys, err := keyring.Parse(text)
	if err != nil {
		return nil, program.Usagef("%s: %w", from, err)
	}
	return keys, nil
}

func (o options) tls() (*tls.Config, error) {
	for _, flag := range []struct{ name, file string }{{"tls-cert-file", o.certFile}, {"tls-private-key-file", o.keyFile}} {
		if flag.file == "" {
			continue
		}
		if _, err := os.ReadFile(flag.file); err != nil {
			return nil, wrong(flag.name, "%w", program.Unreadable(flag.file, err))
		}
	}
	switch {
	case o.certFile == "" && o.keyFile == "":
		return nil, nil //nolint:nilnil // no TLS is not an error
	case o.keyFile == "":
		return nil, wrong("tls-private-key-file", "is not set, must be set with --tls-cert-file")
	case o.certFile == "":
		return nil, wrong("tls-cert-file", "is not set, must be set with --tls-private-key-file")
	}
	if _, err := tls.LoadX509KeyPair(o.certFile, o.keyFile); err != nil {
		return nil, wrong("tls-cert-file", "%s with --tls-private-key-file %s: %w", o.certFile, o.keyFile, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// With TLS 1.2, what has forward secrecy and authenticated encryption. TLS 1.3 has
		// nothing else.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		// Read again for each connection: a renewed certificate is used without a
		// restart.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
			if err != nil {
				return nil, fmt.Errorf("certificate: %w", err)
			}
			return &pair, nil
		},
	}, nil
}
