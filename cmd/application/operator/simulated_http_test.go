package operator_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

func keysOf[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }

func serviceOf(name string) string {
	service, _, _ := strings.Cut(name, " ")
	return service
}

// link carries the requests of a program to a service that speaks HTTP.
type link struct {
	of      *services
	net     http.RoundTripper
	service string
	serve   func(w *simtest.World, body []byte, to *http.Request, answer http.ResponseWriter)
}

// Do implements the client of S3.
func (l link) Do(r *http.Request) (*http.Response, error) { return l.RoundTrip(r) }

// RoundTrip implements [http.RoundTripper].
func (l link) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	answer := httptest.NewRecorder()
	err := l.of.call(r.Context(), l.net, l.service, r.Method+" "+r.URL.Path+query(r), func(w *simtest.World) error {
		l.serve(w, body, r, answer)
		return nil
	})
	if errors.Is(err, errAway) {
		err, answer = nil, httptest.NewRecorder()
		answer.WriteHeader(http.StatusServiceUnavailable)
	}
	if err != nil {
		return nil, err
	}
	response := answer.Result()
	response.Request = r
	return response, nil
}

// query is the part of a URL that says which part of a bucket a request is about.
func query(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

// serveStorage answers as S3 does, in path style.
func (s *services) serveStorage(w *simtest.World, body []byte, r *http.Request, answer http.ResponseWriter) {
	bucket := strings.Trim(r.URL.Path, "/")
	name := theStorage + " " + bucket
	part := ""
	for _, each := range []string{"tagging", "policy", "cors", "publicAccessBlock", "uploads", "versions", "delete"} {
		if r.URL.Query().Has(each) {
			part = each
		}
	}
	found, there := s.things[name]
	t := found.copy()
	refuse := func(status int, code string) {
		answer.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = fmt.Fprintf(answer, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, bucket) // a recorder takes everything
		}
	}
	switch {
	case !there && r.Method == http.MethodPut && part == "":
		s.put(w, name, &thing{ownerTag(body), map[string]string{"objects": "7"}})
	case !there:
		refuse(http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodHead:
	case r.Method == http.MethodPut && part == "":
		refuse(http.StatusConflict, "BucketAlreadyOwnedByYou")
	case r.Method == http.MethodPut && part == "tagging":
		t.mark = ownerTag(body)
		s.put(w, name, &t)
	case r.Method == http.MethodPut:
		t.fields[part] = string(body)
		s.put(w, name, &t)
	case r.Method == http.MethodDelete && part == "" && t.fields["objects"] != "":
		refuse(http.StatusConflict, "BucketNotEmpty")
	case r.Method == http.MethodDelete && part == "":
		s.put(w, name, nil)
		answer.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(t.fields, part)
		s.put(w, name, &t)
		answer.WriteHeader(http.StatusNoContent)
	case part == "delete":
		delete(t.fields, "objects")
		s.put(w, name, &t)
		_, _ = answer.Write([]byte("<DeleteResult/>")) // a recorder takes everything
	default:
		code := map[string]string{
			"policy": "NoSuchBucketPolicy", "cors": "NoSuchCORSConfiguration", "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
		}[part]
		if t.fields[part] == "" && code != "" {
			refuse(http.StatusNotFound, code)
			return
		}
		_, _ = answer.Write(document(t, part)) // a recorder takes everything
	}
}

// document is what S3 shows of a part of a bucket.
func document(t thing, part string) []byte {
	switch part {
	case "tagging":
		return fmt.Appendf(nil, "<Tagging><TagSet><Tag><Key>platform.internal/owner</Key><Value>%s</Value></Tag></TagSet></Tagging>", t.mark)
	case "versions":
		if t.fields["objects"] != "" {
			return []byte("<ListVersionsResult><Version><Key>a</Key><VersionId>1</VersionId></Version></ListVersionsResult>")
		}
		return []byte("<ListVersionsResult/>")
	case "uploads":
		return []byte("<ListMultipartUploadsResult/>")
	}
	return []byte(t.fields[part])
}

// ownerTag is the mark in the tags of a request.
func ownerTag(body []byte) string {
	type tag struct{ Key, Value string }
	var r struct {
		Tags   []tag `xml:"Tags>Tag"`
		TagSet []tag `xml:"TagSet>Tag"`
	}
	if len(body) > 0 && xml.Unmarshal(body, &r) != nil {
		return ""
	}
	for _, each := range slices.Concat(r.Tags, r.TagSet) {
		if each.Key == "platform.internal/owner" {
			return each.Value
		}
	}
	return ""
}

// ownerMarks is the mark of a realm that one object uses.
func ownerMarks(mark string) string {
	return fmt.Sprintf(`{"platform.internal/home":%q,"platform.internal/owner.production":%q}`, mark, mark)
}

// serveLogins answers as Keycloak does. The mark of a realm is its attributes, as JSON; the
// fields are the realm and its client, as JSON.
func (s *services) serveLogins(w *simtest.World, body []byte, r *http.Request, answer http.ResponseWriter) {
	if strings.HasPrefix(r.URL.Path, "/realms/master/") {
		_, _ = answer.Write([]byte(`{"access_token":"t","expires_in":60}`)) // a recorder takes everything
		return
	}
	path, _ := strings.CutPrefix(r.URL.Path, "/admin/realms")
	var sent map[string]any
	if len(body) > 0 && json.Unmarshal(body, &sent) != nil {
		answer.WriteHeader(http.StatusBadRequest)
		return
	}
	realm, of, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if realm == "" {
		realm, _ = sent["realm"].(string)
	}
	name := theLogins + " " + realm
	found, there := s.things[name]
	t := found.copy()
	switch {
	case path == "" && there:
		answer.WriteHeader(http.StatusConflict)
	case path == "":
		s.put(w, name, &thing{text(sent["attributes"]), map[string]string{"realm": without(sent, "attributes")}})
		answer.WriteHeader(http.StatusCreated)
	case !there:
		answer.WriteHeader(http.StatusNotFound)
	case of != "":
		s.serveClient(w, name, t, sent, r, answer)
	case r.Method == http.MethodDelete:
		s.put(w, name, nil)
	case r.Method == http.MethodPut:
		t.mark, t.fields["realm"] = text(sent["attributes"]), without(sent, "attributes")
		s.put(w, name, &t)
	default:
		shown := map[string]any{"realm": realm}
		_ = json.Unmarshal([]byte(t.fields["realm"]), &shown) // one that a person has changed shows its name
		shown["attributes"] = json.RawMessage(t.mark)
		_, _ = answer.Write([]byte(text(shown))) // a recorder takes everything
	}
}

// serveClient answers about the one client of a realm.
func (s *services) serveClient(w *simtest.World, name string, t thing, sent map[string]any, r *http.Request, answer http.ResponseWriter) {
	client := map[string]any{}
	has := t.fields["client"] != ""
	if has && json.Unmarshal([]byte(t.fields["client"]), &client) != nil { // a person has changed it
		client = map[string]any{"redirectUris": []string{"https://attacker.example/*"}}
	}
	switch {
	case r.Method == http.MethodGet && has:
		client["id"] = t.fields["id"]
		_, _ = answer.Write([]byte("[" + text(client) + "]")) // a recorder takes everything
	case r.Method == http.MethodGet:
		_, _ = answer.Write([]byte("[]")) // a recorder takes everything
	case r.Method == http.MethodPost && has:
		answer.WriteHeader(http.StatusConflict)
	case r.Method == http.MethodPost:
		s.made++
		t.fields["id"], t.fields["client"] = fmt.Sprint("id-", s.made), without(sent, "id")
		s.put(w, name, &t)
		answer.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(r.URL.Path, "/clients/"+t.fields["id"]):
		t.fields["client"] = without(sent, "id")
		s.put(w, name, &t)
	default:
		answer.WriteHeader(http.StatusNotFound)
	}
}

func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(out)
}

func without(all map[string]any, field string) string {
	some := maps.Clone(all)
	delete(some, field)
	return text(some)
}
