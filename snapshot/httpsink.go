package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/seed-9e1ffd66/trueup/internal/httpretry"
)

// HTTPSink is a [Sink] that posts each batch as one JSON object, whose only member has
// the list of records:
//
//	{"records": [...]}
//
// The answer is 200 with the account of the batch:
//
//	{"accepted": 2, "duplicates": 1, "rejected": [{"id": "...", "reason": "..."}]}
//
// A batch that is answered with 413 is posted in two halves, unless it is one record.
// That, and the answers 400, 415 and 422, refuse the batch ([ErrRefused]) if they are the
// server's own; see [HTTPSink.Refuses]. Any other answer is an error that may pass. The
// fields must not change after the first use. It is safe for concurrent use.
type HTTPSink struct {
	// URL is where to post. Required.
	URL string
	// Member is the name of the list. Default "records".
	Member string
	// RejectedID is the member of a rejection that has the identity of the record.
	// Default "id".
	RejectedID string
	// Authorize, if set, adds the credential to each request. Default nil: none.
	Authorize func(*http.Request) error
	// Refuses reports whether the body of an answer 400, 413, 415 or 422 belongs to the
	// server. The answer of anything between, such as a proxy, is an error that may pass:
	// the records are kept. Default: it is {"error": {"code": "..."}} with a code.
	Refuses func(body []byte) bool
	// Client sends the requests, with its own retries. Default: one that makes three
	// attempts of 30 s with exponential backoff, obeys Retry-After up to 8 s, and
	// follows no redirect.
	Client interface {
		Do(request *http.Request) (*http.Response, error)
	}

	once   sync.Once
	client *http.Client
}

// maxAnswer is the size of an answer that is read.
const maxAnswer = 8 << 20

// Send posts the records.
func (s *HTTPSink) Send(ctx context.Context, records []json.RawMessage) (Receipt, error) {
	receipt, err := s.post(ctx, records)
	if large := (*tooLargeError)(nil); len(records) < 2 || !errors.As(err, &large) {
		return receipt, err
	}
	first, err := s.Send(ctx, records[:len(records)/2])
	if err != nil && !errors.Is(err, ErrRefused) {
		return Receipt{}, err
	}
	first = refused(first, err, len(records)/2)
	second, err := s.Send(ctx, records[len(records)/2:])
	if err != nil && !errors.Is(err, ErrRefused) {
		return Receipt{}, err
	}
	second = refused(second, err, len(records)-len(records)/2)
	return Receipt{
		first.Accepted + second.Accepted, first.Duplicates + second.Duplicates, slices.Concat(first.Rejected, second.Rejected),
	}, nil
}

// refused is the receipt of a part of a batch, which rejects it if err refuses it.
func refused(receipt Receipt, err error, records int) Receipt {
	if err == nil {
		return receipt
	}
	return Receipt{Rejected: slices.Repeat([]Rejection{{Reason: err.Error()}}, records)}
}

func (s *HTTPSink) post(ctx context.Context, records []json.RawMessage) (Receipt, error) {
	body, err := s.body(records)
	if err != nil {
		return Receipt{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return Receipt{}, fmt.Errorf("snapshot: HTTPSink.URL: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	if s.Authorize != nil {
		if err := s.Authorize(request); err != nil {
			return Receipt{}, fmt.Errorf("credential: %w", err)
		}
	}
	response, err := s.do(request)
	if err != nil {
		return Receipt{}, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was written
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Receipt{}, fmt.Errorf("read the answer %s: %w", response.Status, err)
	}
	if response.StatusCode == http.StatusOK {
		return s.receipt(answer)
	}
	err = answered(response, answer)
	switch response.StatusCode {
	case http.StatusRequestEntityTooLarge, http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		if s.refuses(answer) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	if response.StatusCode == http.StatusRequestEntityTooLarge {
		err = &tooLargeError{err}
	}
	return Receipt{}, err
}

func (s *HTTPSink) refuses(answer []byte) bool {
	if s.Refuses != nil {
		return s.Refuses(answer)
	}
	code, _ := failure(answer)
	return code != ""
}

// body returns the body of a post. The records are JSON already, and are not parsed
// again.
func (s *HTTPSink) body(records []json.RawMessage) ([]byte, error) {
	member, err := json.Marshal(cmp.Or(s.Member, "records"))
	if err != nil {
		return nil, err
	}
	size := len(member) + len(`{:[]}`)
	for _, record := range records {
		size += len(record) + 1
	}
	body := append(append(append(make([]byte, 0, size), '{'), member...), ":["...)
	for i, record := range records {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, record...)
	}
	return append(body, "]}"...), nil
}

func (s *HTTPSink) do(request *http.Request) (*http.Response, error) {
	if s.Client != nil {
		return s.Client.Do(request)
	}
	s.once.Do(func() { s.client = httpretry.New(httpretry.Config{}) })
	return s.client.Do(request)
}

func (s *HTTPSink) receipt(answer []byte) (Receipt, error) {
	var body struct {
		Accepted   int              `json:"accepted"`
		Duplicates int              `json:"duplicates"`
		Rejected   []map[string]any `json:"rejected"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return Receipt{}, fmt.Errorf("answer: %w", err)
	}
	receipt := Receipt{Accepted: body.Accepted, Duplicates: body.Duplicates}
	for _, r := range body.Rejected {
		// What is no text is left out: the record is rejected all the same.
		id, _ := r[cmp.Or(s.RejectedID, "id")].(string)
		reason, _ := r["reason"].(string)
		receipt.Rejected = append(receipt.Rejected, Rejection{ID: id, Reason: reason})
	}
	return receipt, nil
}

// answered is the error of an answer, with the code and message of a body that has
// them.
func answered(response *http.Response, answer []byte) error {
	code, message := failure(answer)
	if code == "" {
		return fmt.Errorf("answer %s", response.Status)
	}
	return fmt.Errorf("answer %s: %s: %s", response.Status, code, message)
}

// failure returns what a body {"error": {"code": "...", "message": "..."}} has; no code if
// it is another.
func failure(answer []byte) (code, message string) {
	var body struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(answer, &body) != nil {
		return "", ""
	}
	return body.Error.Code, body.Error.Message
}

// tooLargeError is the answer 413.
type tooLargeError struct{ error }

// Unwrap returns the answer, which wraps ErrRefused if it is the server's own.
func (e *tooLargeError) Unwrap() error { return e.error }
