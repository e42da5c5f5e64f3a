package oidcauth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

const (
	// maxToken is the size in bytes above which a token is refused.
	maxToken = 16 << 10
	// maxName is how many characters of a name are kept.
	maxName = 63
	// maxGroups is how many groups of a person are looked at, and maxGroup their size in bytes.
	maxGroups, maxGroup = 1000, 1000
	// skew is how far the clocks of the issuer and of this machine may be apart.
	skew = time.Minute
	// lastYear is the last one that a time in JSON can have.
	lastYear = 9999
)

// algorithms sign with a key that the issuer alone has.
var algorithms = []jose.SignatureAlgorithm{ //nolint:gochecknoglobals // a table
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Config is what [People] need.
type Config struct {
	// Issuer is the URL of the issuer, as its tokens have it, and ClientID the client's id there.
	// Required.
	Issuer, ClientID string
	// ClientSecret is the secret of the client. Empty: it is public, and has PKCE alone.
	ClientSecret string
	// Groups has the roles. Required.
	Groups *tokens.GroupFile
	// UsernameClaim has the name of the person. Empty: preferred_username.
	UsernameClaim string
	// GroupsClaim has the groups of the person. Empty: groups.
	GroupsClaim string
	// ExternalURL is where browsers reach the status page, without a path. Empty: there is no
	// sign-in on the page.
	ExternalURL string
	// HTTP sends the requests to the issuer. Nil: the default client.
	HTTP *http.Client
	// Logger gets failures of the issuer. Nil: nothing is logged.
	Logger *slog.Logger
}

// People are the administrators whom an issuer identifies. It is safe for concurrent use. A nil
// People has none.
type People struct {
	config   Config
	issuer   *issuer
	exchange *rate.Limiter
}

// New returns the people of an issuer, which is not asked yet, or an error that names the field
// of config that is missing.
func New(config Config) (*People, error) {
	for name, missing := range map[string]bool{
		"Issuer": config.Issuer == "", "ClientID": config.ClientID == "", "Groups": config.Groups == nil,
	} {
		if missing {
			return nil, fmt.Errorf("oidcauth.Config: %s is required", name)
		}
	}
	config.UsernameClaim = cmp.Or(config.UsernameClaim, "preferred_username")
	config.GroupsClaim = cmp.Or(config.GroupsClaim, "groups")
	client := *cmp.Or(config.HTTP, http.DefaultClient)
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = limited{client.Transport}
	config.HTTP = &client
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	return &People{
		config: config, issuer: newIssuer(config.Issuer, config.HTTP, config.Logger),
		exchange: rate.NewLimiter(exchangesPerSecond, exchangesAtOnce),
	}, nil
}

// refusal is why a token is not accepted. Its text is for the client.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// unlisted is a person without a right.
type unlisted struct{ message string }

func (u *unlisted) Error() string { return u.message }

// Looks reports whether a credential is a JSON Web Token by its form.
func Looks(token string) bool {
	header, rest, _ := strings.Cut(token, ".")
	if strings.Count(rest, ".") != 1 {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(header)
	return err == nil && json.Valid(text) && text[0] == '{'
}

// Authenticate returns the administrator with the token of a request: one of the file, or an ID
// token of a person, then with its end. Other tokens are counted by the guard as failures for the
// endpoint, without those that have expired. An error is an [adminapi.Error] that never has the
// token: 401 for a token that is not valid, 403 for a person without a right, 503 if the token
// cannot be checked now, 429 after too many failures.
func (p *People) Authenticate(r *http.Request, admins tokens.Admins, g *guard.Guard, endpoint, token string) (tokens.Admin, error) {
	admin, err := admins.Find(token)
	switch {
	case errors.Is(err, tokens.ErrExpired):
		err = &expiry{admin.Expires}
	case errors.Is(err, tokens.ErrUnknown) && p != nil && Looks(token):
		admin, err = p.verify(r.Context(), token, "")
	}
	if refused := p.Refused(r, g, endpoint, token, err); refused != nil {
		return admin, refused
	}
	return admin, nil
}

// Valid reports whether Authenticate would return the administrator of a token, without counting
// a failure. A token that cannot be checked now is valid: it was when the request began.
func (p *People) Valid(ctx context.Context, admins tokens.Admins, token string) bool {
	_, err := admins.Find(token)
	if errors.Is(err, tokens.ErrUnknown) && p != nil && Looks(token) {
		_, err = p.verify(ctx, token, "")
	}
	return err == nil || errors.Is(err, errUnavailable)
}

// Refused returns what the error of a token or of [People.Finish] is answered with, nil for no
// error. A credential that is not valid is counted by the guard.
func (p *People) Refused(r *http.Request, g *guard.Guard, endpoint, credential string, err error) *adminapi.Error {
	switch refused, expired := (*refusal)(nil), (*expiry)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &expired):
		return &adminapi.Error{Status: http.StatusUnauthorized, Code: "token_expired", Message: expired.Error()}
	case errors.Is(err, errUnavailable):
		return &adminapi.Error{
			Status: http.StatusServiceUnavailable, Code: "issuer_unavailable",
			Message: "the sign-in cannot be checked now: the issuer of --oidc-issuer cannot be reached, or answers what cannot be used; " +
				"the log of the control plane says why",
		}
	case errors.Is(err, ErrBusy):
		return &adminapi.Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: err.Error()}
	case errors.As(err, new(*unlisted)):
		return &adminapi.Error{Status: http.StatusForbidden, Code: "no_role", Message: err.Error()}
	case errors.As(err, &refused):
		if wait := g.Failed(r, endpoint, credential); wait > 0 {
			return guard.TooMany(wait)
		}
		return &adminapi.Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: refused.message}
	}
	return g.Refused(r, endpoint, credential)
}

// expiry is a token that was valid.
type expiry struct{ at time.Time }

func (e *expiry) Error() string {
	return "the token has expired, at " + e.at.UTC().Format(time.RFC3339)
}

// claims are what is read of an ID token.
type claims struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
	Party    string   `json:"azp"`
	Issued   seconds  `json:"iat"`
	Begins   seconds  `json:"nbf"`
}

// audience is one text, or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// seconds is a time as JSON Web Tokens have it, zero if there is none.
type seconds float64

func (s seconds) after(t time.Time) bool { return float64(s) > float64(t.Unix()) }

// keySet keeps why a signature could not be checked, of which go-oidc keeps the text alone.
type keySet struct {
	from *issuer
	err  error
}

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, k.err = k.from.verify(ctx, token)
	return payload, k.err
}

// verify returns the administrator that an ID token identifies, if it has the nonce, or why there
// is none: errUnavailable, expiry, a refusal, or unlisted.
func (p *People) verify(ctx context.Context, token, nonce string) (tokens.Admin, error) {
	if len(token) > maxToken {
		return tokens.Admin{}, &refusal{fmt.Sprintf("the ID token has more than %d bytes", maxToken)}
	}
	names := make([]string, len(algorithms))
	for n, algorithm := range algorithms {
		names[n] = string(algorithm)
	}
	keys := &keySet{from: p.issuer}
	verifier := oidc.NewVerifier(p.config.Issuer, keys, &oidc.Config{
		ClientID: p.config.ClientID, SupportedSigningAlgs: names,
		SkipExpiryCheck: true, // what is expired must be right in all else
	})
	found, err := verifier.Verify(ctx, token)
	if errors.Is(keys.err, errUnavailable) {
		return tokens.Admin{}, keys.err
	}
	if errors.Is(keys.err, errKind) {
		return tokens.Admin{}, &refusal{"the token has the type of another than an ID token in its header, must be JWT or none"}
	}
	if err != nil {
		return tokens.Admin{}, p.why(token)
	}
	if err := unambiguous(found); err != nil {
		return tokens.Admin{}, err
	}
	var of claims
	if err := found.Claims(&of); err != nil || found.Subject == "" {
		return tokens.Admin{}, &refusal{"the ID token has a claim of another type than it should have, or no sub"}
	}
	now := time.Now()
	switch {
	case len(of.Audience) != 1, of.Party != "" && of.Party != p.config.ClientID:
		return tokens.Admin{}, p.foreign(of)
	case of.Issued.after(now.Add(skew)), of.Begins.after(now.Add(skew)):
		return tokens.Admin{}, &refusal{"the ID token is of the future: the clock of the control plane or of the issuer may be off"}
	case found.Expiry.IsZero():
		return tokens.Admin{}, &refusal{"the ID token has no end"}
	case found.Expiry.UTC().Year() > lastYear:
		return tokens.Admin{}, &refusal{fmt.Sprintf("the ID token ends after the year %d", lastYear)}
	case !now.Before(found.Expiry):
		return tokens.Admin{}, &expiry{found.Expiry}
	case nonce != "" && !tokens.Same(found.Nonce, nonce):
		return tokens.Admin{}, &refusal{"the ID token belongs to another sign-in"}
	}
	return p.admin(found)
}

// why returns why a token was refused. What it says of the token was not proven.
func (p *People) why(token string) error {
	_, rest, _ := strings.Cut(token, ".") // an issuer may answer anything as an ID token
	payload, _, _ := strings.Cut(rest, ".")
	var of claims
	if text, err := base64.RawURLEncoding.DecodeString(payload); err != nil || json.Unmarshal(text, &of) != nil {
		return &refusal{"the ID token cannot be read"}
	}
	if of.Issuer != p.config.Issuer {
		return &refusal{fmt.Sprintf("the ID token is of the issuer %q, must be of %s", clean(of.Issuer, 2*maxName), p.config.Issuer)}
	}
	if len(of.Audience) != 1 || of.Audience[0] != p.config.ClientID {
		return p.foreign(of)
	}
	return &refusal{"the signature of the ID token is not valid: none of the issuer's keys has made it with an algorithm such as RS256"}
}

// foreign is the refusal of a token that is for another client.
func (p *People) foreign(of claims) error {
	for _, other := range append(of.Audience, of.Party) {
		if other != "" && other != p.config.ClientID {
			return &refusal{fmt.Sprintf("the token is for %q, must be an ID token for the client %s alone",
				clean(other, maxName), p.config.ClientID)}
		}
	}
	return &refusal{"the token is not for one client, must be an ID token for the client " + p.config.ClientID + " alone"}
}

// admin returns the administrator that the claims of a valid token identify.
func (p *People) admin(token *oidc.IDToken) (tokens.Admin, error) {
	var all map[string]any
	if err := token.Claims(&all); err != nil {
		return tokens.Admin{}, &refusal{"the ID token has no claims"}
	}
	text, _ := all[p.config.UsernameClaim].(string)
	name := clean(text, maxName)
	if name == "" {
		return tokens.Admin{}, &unlisted{fmt.Sprintf(
			"the ID token has no claim %s, which --oidc-username-claim names, with the name of the person", p.config.UsernameClaim)}
	}
	person := tokens.Person{Issuer: token.Issuer, Subject: token.Subject, Groups: groups(all[p.config.GroupsClaim])}
	admin, err := p.Admin(person, name)
	admin.Expires = token.Expiry
	return admin, err
}

// Admin returns the administrator that a person with this name is now, by the file of groups, or
// an error if none of the person's groups is there, or the person is of another
// issuer.
func (p *People) Admin(person tokens.Person, name string) (tokens.Admin, error) {
	if p != nil && person.Issuer == p.config.Issuer {
		if admin, ok := p.config.Groups.Admin(person, name); ok {
			return admin, nil
		}
	}
	return tokens.Admin{}, &unlisted{fmt.Sprintf("%s has signed in, and has no right here: none of the %d groups in the claim of the person "+
		"is listed in --oidc-groups-file", name, len(person.Groups))}
}

// groups returns the groups of a claim: a list of texts, or one.
func groups(claim any) (list []string) {
	if one, ok := claim.(string); ok {
		claim = []any{one}
	}
	all, _ := claim.([]any)
	for _, each := range all {
		if text, ok := each.(string); ok && text != "" && len(text) <= maxGroup && len(list) < maxGroups {
			list = append(list, text)
		}
	}
	return list
}

// clean returns a text as logs may show it: at most that many characters, without any that
// a terminal obeys or that cannot be seen.
func clean(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.TrimSpace(text))
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}
