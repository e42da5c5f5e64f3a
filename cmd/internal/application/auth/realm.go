package auth

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// Want is what one object needs of a realm.
type Want struct {
	// Realm and Client are the names. Required.
	Realm, Client string
	// Share is what distinguishes the objects that share a realm, such as the environment
	// production. Required.
	Share string
	// Redirects are the redirect URIs, such as https://app.example.com/*, and Origins the
	// web origins, such as https://app.example.com. None has a space.
	Redirects, Origins []string
	// Providers are the types of the identity providers that must be set up, such as
	// google. Their secrets are the administrator's to enter.
	Providers []string
	// Mark is the mark of the object.
	Mark outside.Mark
}

// Result is what became of a realm.
type Result struct {
	// Done are the changes, as phrases. Empty: nothing was written.
	Done []string
	// Missing are the Providers that are not set up.
	Missing []string
}

// ownerPrefix begins the attribute of each object that uses the realm.
const ownerPrefix = "platform.internal/owner."

const (
	redirectField = "redirect="
	originField   = "origin="
)

// owner is the text of the attribute: the mark, and what the object needs of the client.
func (w Want) owner() string {
	fields := []string{w.Mark.String()}
	for _, uri := range w.Redirects {
		fields = append(fields, redirectField+uri)
	}
	for _, origin := range w.Origins {
		fields = append(fields, originField+origin)
	}
	return strings.Join(fields, " ")
}

func (w Want) key() string { return ownerPrefix + w.Share }

// realm is what is read and written of a realm.
type realm struct {
	Realm      string            `json:"realm"`
	Enabled    bool              `json:"enabled"`
	Register   bool              `json:"registrationAllowed"`
	EmailLogin bool              `json:"loginWithEmailAllowed"`
	Attributes map[string]string `json:"attributes"`
}

// owners are the objects that use the realm, by attribute.
func (r *realm) owners() map[string]string {
	found := map[string]string{}
	for key, text := range r.Attributes {
		if _, marked := outside.ParseMark(text); marked && strings.HasPrefix(key, ownerPrefix) {
			found[key] = text
		}
	}
	return found
}

// values returns a field of all objects that use the realm, sorted. It is never nil:
// Keycloak takes null for no change.
func (r *realm) values(field string) []string {
	all := map[string]bool{}
	for _, text := range r.owners() {
		for value := range strings.FieldsSeq(text) {
			if value, found := strings.CutPrefix(value, field); found {
				all[value] = true
			}
		}
	}
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(all))))
}

// claim reports whether the object may use the realm: it does already, or others of its
// Application do: other environments, or copies.
func (r *realm) claim(w Want) error {
	if text := r.Attributes[w.key()]; text != "" {
		if w.Mark.Claim(text) == outside.Foreign {
			return outside.Owned("realm "+w.Realm, text)
		}
		return nil
	}
	owners := r.owners()
	for _, key := range slices.Sorted(maps.Keys(owners)) {
		if mark, _ := outside.ParseMark(owners[key]); mark.App() != w.Mark.App() {
			return outside.Owned("realm "+w.Realm, owners[key])
		}
	}
	if len(owners) == 0 {
		return outside.Owned("realm "+w.Realm, "")
	}
	return nil
}

// Apply makes the realm and the client as the object needs them.
func (s *Server) Apply(ctx context.Context, w Want) (result Result, err error) {
	r, err := s.realm(ctx, w.Realm)
	if hasStatus(err, http.StatusNotFound) {
		r, err = s.create(ctx, w, &result)
	}
	if err != nil {
		return result, err
	}
	if err := r.claim(w); err != nil {
		return result, err
	}
	if !r.Enabled || !r.Register || !r.EmailLogin || r.Attributes[w.key()] != w.owner() {
		r.Enabled, r.Register, r.EmailLogin = true, true, true
		r.Attributes[w.key()] = w.owner()
		if err := s.write(ctx, r); err != nil {
			return result, err
		}
		result.Done = append(result.Done, "update realm "+w.Realm)
	}
	if err := s.keepClient(ctx, r, w.Client, &result); err != nil {
		return result, err
	}
	result.Missing, err = s.missing(ctx, w)
	return result, err
}

func (s *Server) realm(ctx context.Context, name string) (*realm, error) {
	r := &realm{}
	if err := s.call(ctx, http.MethodGet, "/"+url.PathEscape(name), nil, r); err != nil {
		return nil, err
	}
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	return r, nil
}

// create makes the realm with its mark, in one request. Another may be faster.
func (s *Server) create(ctx context.Context, w Want, result *Result) (*realm, error) {
	made := realm{Realm: w.Realm, Enabled: true, Register: true, EmailLogin: true, Attributes: map[string]string{w.key(): w.owner()}}
	switch err := s.call(ctx, http.MethodPost, "", made, nil); {
	case err == nil:
		result.Done = append(result.Done, "create realm "+w.Realm)
	case !hasStatus(err, http.StatusConflict):
		return nil, err
	}
	return s.realm(ctx, w.Realm)
}

// write writes the realm. Keycloak drops the attributes that are not named, so all are;
// those of another who writes between are written again by its next pass.
func (s *Server) write(ctx context.Context, r *realm) error {
	return s.call(ctx, http.MethodPut, "/"+url.PathEscape(r.Realm), r, nil)
}

// missing returns the providers that the realm lacks.
func (s *Server) missing(ctx context.Context, w Want) (missing []string, err error) {
	if len(w.Providers) == 0 {
		return nil, nil
	}
	var there []struct {
		Type    string `json:"providerId"`
		Enabled bool   `json:"enabled"`
	}
	if err := s.call(ctx, http.MethodGet, "/"+url.PathEscape(w.Realm)+"/identity-provider/instances", nil, &there); err != nil {
		return nil, err
	}
	enabled := map[string]bool{}
	for _, provider := range there {
		enabled[provider.Type] = enabled[provider.Type] || provider.Enabled
	}
	for _, wanted := range w.Providers {
		if !enabled[wanted] {
			missing = append(missing, wanted)
		}
	}
	return missing, nil
}

// Delete ends the use of the realm by the object: its redirect URIs go, and the realm
// with its users if no other uses it. With retain the realm stays, for the next object of
// the name. A realm that is not there, or that the object does not use, is left alone.
func (s *Server) Delete(ctx context.Context, w Want, retain bool) (done []string, err error) {
	r, err := s.realm(ctx, w.Realm)
	if hasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mark, text := w.Mark, r.Attributes[w.key()]
	mark.Retained = true
	switch {
	case w.Mark.Claim(text) != outside.Ours && text != mark.String():
		return nil, nil
	case !retain && len(r.owners()) == 1:
		if err := s.call(ctx, http.MethodDelete, "/"+url.PathEscape(w.Realm), nil, nil); err != nil && !hasStatus(err, http.StatusNotFound) {
			return nil, err
		}
		return []string{"delete realm " + w.Realm}, nil
	case retain:
		// The next owner of the domain must not receive logins.
		r.Attributes[w.key()] = mark.String()
	default:
		delete(r.Attributes, w.key())
	}
	if r.Attributes[w.key()] != text {
		if err := s.write(ctx, r); err != nil {
			return nil, err
		}
		done = append(done, fmt.Sprintf("leave realm %s", w.Realm))
	}
	result := Result{Done: done}
	err = s.keepClient(ctx, r, w.Client, &result)
	return result.Done, err
}

// Issuer is the URL of a realm for those who check its tokens.
func (s *Server) Issuer(name string) string {
	return s.options.URL + "/realms/" + url.PathEscape(name)
}
