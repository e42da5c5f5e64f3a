package auth

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
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
	// SharedWith are the namespaces whose objects of the same name may use the realm, too,
	// while it belongs to the namespace of this one. Those of its own namespace always may.
	SharedWith []string
	// Mark is the mark of the object.
	Mark external.Mark
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

// homeKey is the attribute that says which cluster, namespace and name the realm belongs to:
// the mark of the object that made it, and the namespaces that it is shared with. It stays
// when that object goes and others use the realm.
const homeKey = "platform.internal/home"

const (
	redirectField = "redirect="
	originField   = "origin="
	shareField    = "share="
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
	for _, namespace := range w.SharedWith {
		fields = append(fields, shareField+namespace)
	}
	return strings.Join(fields, " ")
}

func (w Want) key() string { return ownerPrefix + w.Share }

// realm has the fields that are read and written of a realm.
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
		if _, marked := external.ParseMark(text); marked && strings.HasPrefix(key, ownerPrefix) {
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

// home returns the mark of the object that the realm belongs to, with its cluster, namespace
// and name. A realm of earlier has no attribute that says so: it belongs to the first of
// those that use it, in production if there is one.
func (r *realm) home() (mark external.Mark, known bool) {
	if mark, known = external.ParseMark(r.Attributes[homeKey]); known {
		return mark, true
	}
	owners := r.owners()
	for _, key := range slices.Concat([]string{ownerPrefix + "production"}, slices.Sorted(maps.Keys(owners))) {
		if mark, known = external.ParseMark(owners[key]); known {
			return mark, true
		}
	}
	return external.Mark{}, false
}

// fields returns the values of a field of one attribute.
func fields(text, field string) (found []string) {
	for value := range strings.FieldsSeq(text) {
		if value, ok := strings.CutPrefix(value, field); ok {
			found = append(found, value)
		}
	}
	return found
}

// lives reports whether an object is in the namespace that the realm belongs to.
func lives(home, mark external.Mark) bool {
	return home.Cluster == mark.Cluster && home.Namespace == mark.Namespace && home.App() == mark.App()
}

// admits reports whether an object may use a realm of that home, which is shared with these
// namespaces: it lives there, or its namespace is listed.
func admits(home external.Mark, shared []string, mark external.Mark) bool {
	return lives(home, mark) || home.Cluster == mark.Cluster && home.App() == mark.App() && slices.Contains(shared, mark.Namespace)
}

// claim returns an error unless the object may use the realm. Those of other namespaces are
// not named: the reader may be a stranger.
func (r *realm) claim(w Want) error {
	home, known := r.home()
	switch {
	case !known:
		return external.Owned("realm "+w.Realm, "")
	case home.Cluster != w.Mark.Cluster || home.App() != w.Mark.App():
		return fmt.Errorf("realm %s belongs to another Application: %w; choose another name", w.Realm, external.ErrOwnedByOther)
	case !admits(home, fields(r.Attributes[homeKey], shareField), w.Mark):
		return fmt.Errorf(
			"realm %s belongs to an Application of another namespace: %w; choose another name, or ask its owner to list namespace %s in spec.auth.sharedWith",
			w.Realm,
			external.ErrOwnedByOther,
			w.Mark.Namespace,
		)
	}
	text := r.Attributes[w.key()]
	switch {
	case text == "" || w.Mark.Claim(text) != external.Foreign:
		return nil
	case lives(home, w.Mark):
		if other, _ := external.ParseMark(text); !r.admitted(other) {
			return nil // it is about to go
		}
		return external.Owned("realm "+w.Realm, text)
	default:
		return fmt.Errorf(
			"realm %s is used by another Application as %s: %w; choose another environment or name",
			w.Realm,
			w.Share,
			external.ErrOwnedByOther,
		)
	}
}

func (r *realm) admitted(mark external.Mark) bool {
	home, known := r.home()
	return known && admits(home, fields(r.Attributes[homeKey], shareField), mark)
}

// settle writes the attributes of an object that lives where the realm belongs, and removes
// the attributes of objects that may not use it, with their redirect URIs. It reports whether
// anything changed.
func (r *realm) settle(w Want) (changed bool) {
	set := func(key, value string) {
		if r.Attributes[key] != value {
			r.Attributes[key], changed = value, true
		}
	}
	home, known := r.home()
	if !known || !lives(home, w.Mark) {
		set(w.key(), w.owner())
		return changed
	}
	set(w.key(), w.owner())
	shared := map[string]bool{}
	owners := r.owners()
	for _, text := range owners {
		if mark, _ := external.ParseMark(text); lives(home, mark) {
			for _, namespace := range fields(text, shareField) {
				shared[namespace] = true
			}
		}
	}
	home.Retained = false
	text := []string{home.String()}
	for _, namespace := range slices.Sorted(maps.Keys(shared)) {
		text = append(text, shareField+namespace)
	}
	set(homeKey, strings.Join(text, " "))
	for key, text := range owners {
		if mark, _ := external.ParseMark(text); !r.admitted(mark) {
			delete(r.Attributes, key)
			changed = true
		}
	}
	return changed
}

// Apply makes the realm and the client as the object needs them.
func (s *Server) Apply(ctx context.Context, w Want) (result Result, err error) {
	end, err := s.turn(ctx, w.Realm)
	if err != nil {
		return result, err
	}
	defer end()
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
	if changed := r.settle(w); changed || !r.Enabled || !r.Register || !r.EmailLogin {
		r.Enabled, r.Register, r.EmailLogin = true, true, true
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
	made := realm{Realm: w.Realm, Enabled: true, Register: true, EmailLogin: true, Attributes: map[string]string{}}
	made.Attributes[homeKey] = w.Mark.String()
	made.settle(w)
	switch err := s.call(ctx, http.MethodPost, "", made, nil); {
	case err == nil:
		result.Done = append(result.Done, "create realm "+w.Realm)
	case !hasStatus(err, http.StatusConflict):
		return nil, err
	}
	return s.realm(ctx, w.Realm)
}

// write writes the realm. Keycloak drops attributes that are not in the request, so all are
// in it. Attributes that another writer adds in between are written again by its next pass.
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
	end, err := s.turn(ctx, w.Realm)
	if err != nil {
		return nil, err
	}
	defer end()
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
	case w.Mark.Claim(text) != external.Ours && text != mark.String():
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
