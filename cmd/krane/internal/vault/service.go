package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
)

// Service is a vault that is asked over HTTP: POST <URL>/v1/decrypt with
//
//	{"keyring":"<id>","ciphertext":"<base64>"}
//
// and Authorization: Bearer <Token>, answered with 200 and
//
//	{"plaintext":"<base64>"}
//
// Requests that fail on the way, or with 408, 425, 429 or 5xx but 501, are
// repeated, three attempts in all. 400, 404, 409 and 422 are refusals.
type Service struct {
	// URL is the base. Required.
	URL *url.URL
	// Token identifies the caller. Required.
	Token string
	// Client makes the requests. Required; NewService sets it.
	Client *http.Client
}

// NewService returns a Service with a client that repeats what may be repeated.
func NewService(base *url.URL, token string) *Service {
	return &Service{URL: base, Token: token, Client: httpretry.New(httpretry.Config{})}
}

// mostAnswer is more than a Secret holds, in base64.
const mostAnswer = 4 << 20

type decryptRequest struct {
	Keyring    string `json:"keyring"`
	Ciphertext []byte `json:"ciphertext"`
}

// Decrypt implements Decrypter.
func (s *Service) Decrypt(ctx context.Context, keyring string, ciphertext []byte) ([]byte, error) {
	body, err := json.Marshal(decryptRequest{keyring, ciphertext})
	if err != nil {
		return nil, errors.New("vault: the request cannot be encoded")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL.JoinPath("v1", "decrypt").String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("vault: the URL is none")
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return nil, fmt.Errorf("vault: %w: keyring %s: status %d", ErrRefused, keyring, response.StatusCode)
	default: // its body is not shown: it is not ours
		return nil, fmt.Errorf("vault: keyring %s: status %d", keyring, response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("vault: answer: %w", err)
	}
	var answer struct {
		Plaintext *[]byte `json:"plaintext"`
	}
	if json.Unmarshal(data, &answer) != nil || answer.Plaintext == nil {
		return nil, fmt.Errorf("vault: keyring %s: the answer is not what was asked for", keyring)
	}
	return *answer.Plaintext, nil
}
