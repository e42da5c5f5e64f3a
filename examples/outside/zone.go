package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// zone is the client of a service of names: GET, PUT and DELETE of /records/NAME, with ETags. A record has a
// comment, which keeps the mark. Each write holds only for the version that was read, or if there is none:
// between the two another may have made it, or changed it.
type zone struct {
	url    string
	client *http.Client
}

type record struct {
	Target  string `json:"target"`
	Comment string `json:"comment"`
}

// put makes the record of a name as it should be.
func (z *zone) put(ctx context.Context, mark external.Mark, name, target string) error {
	have, etag, err := z.get(ctx, name)
	want := record{target, mark.String()}
	switch {
	case err != nil:
		return err
	case etag == "":
		return z.change(ctx, http.MethodPut, name, &want, "If-None-Match", "*")
	case mark.Claim(have.Comment) == external.Foreign:
		return external.Owned(domain, "record "+name, have.Comment)
	case have == want:
		return nil
	}
	return z.change(ctx, http.MethodPut, name, &want, "If-Match", etag)
}

// remove deletes the record of a name if it has the mark.
func (z *zone) remove(ctx context.Context, mark external.Mark, name string) error {
	have, etag, err := z.get(ctx, name)
	if err != nil || etag == "" || mark.Claim(have.Comment) != external.Ours {
		return err
	}
	return z.change(ctx, http.MethodDelete, name, nil, "If-Match", etag)
}

// get returns a record and its ETag, which is empty if there is none.
func (z *zone) get(ctx context.Context, name string) (have record, etag string, err error) {
	response, body, err := z.send(ctx, http.MethodGet, name, nil, "Accept", "application/json")
	switch {
	case err != nil:
		return have, "", err
	case response.StatusCode == http.StatusNotFound:
		return have, "", nil
	case response.StatusCode != http.StatusOK || response.Header.Get("ETag") == "":
		return have, "", fmt.Errorf("get record %s: %s", name, response.Status)
	}
	return have, response.Header.Get("ETag"), json.Unmarshal(body, &have)
}

func (z *zone) change(ctx context.Context, method, name string, want *record, condition, etag string) error {
	response, _, err := z.send(ctx, method, name, want, condition, etag)
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusPreconditionFailed:
		return fmt.Errorf("%s record %s: it has changed meanwhile", strings.ToLower(method), name)
	case response.StatusCode >= 300:
		return fmt.Errorf("%s record %s: %s", strings.ToLower(method), name, response.Status)
	}
	return nil
}

func (z *zone) send(ctx context.Context, method, name string, body *record, header, value string) (*http.Response, []byte, error) {
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body) // two strings
	}
	request, err := http.NewRequestWithContext(ctx, method, z.url+"/records/"+url.PathEscape(name), bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set(header, value)
	response, err := z.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return response, answer, err
}
