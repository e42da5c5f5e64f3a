package storage_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/storage"
)

// answers has an error code for each request, such as "GET tagging": what the real service of
// these tests never answers, as it has one account.
type answers map[string]string

func (a answers) Do(r *http.Request) (*http.Response, error) {
	query, _, _ := strings.Cut(r.URL.RawQuery, "=")
	code := a[strings.TrimSpace(r.Method+" "+query)]
	status := http.StatusOK
	switch {
	case strings.HasPrefix(code, "NoSuch"):
		status = http.StatusNotFound
	case code != "":
		status = http.StatusForbidden
	}
	body := "<Error><Code>" + code + "</Code></Error>"
	if code == "" {
		body = "<Answer/>"
	}
	if r.Method == http.MethodHead {
		body = ""
	}
	return &http.Response{StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}, nil
}

func TestABucketThatMayNotBeReadIsOfAnotherAccountOrTheRightsAreMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers answers
		exists  bool
		err     error
		says    string
	}{
		"of another account": {
			answers{"GET tagging": "AccessDenied", "HEAD": "Forbidden"}, false, external.ErrOwnedByOther, "bucket plattr-prod-a",
		},
		"no rights at all": {
			answers{"GET tagging": "AccessDenied", "HEAD": "Forbidden", "GET x-id": "AccessDenied"}, false, external.ErrDenied, "list buckets",
		},
		"no right to the tags": {answers{"GET tagging": "AccessDenied"}, false, external.ErrDenied, "their rights"},
		"another's key":        {answers{"GET tagging": "InvalidAccessKeyId"}, false, external.ErrDenied, "InvalidAccessKeyId"},
		"absent":               {answers{"GET tagging": "NoSuchBucket"}, false, nil, ""},
		"without a mark":       {answers{"GET tagging": "NoSuchTagSet", "GET policy": "AccessDenied"}, true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := storage.Open(t.Context(), storage.Options{
				Endpoint: "http://s3.example.com", Region: "x", HTTP: c.answers, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
			})
			require.NoError(t, err)
			state, err := s.Observe(t.Context(), want("a"))
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.exists, state.Exists)
			if c.err != nil {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}
