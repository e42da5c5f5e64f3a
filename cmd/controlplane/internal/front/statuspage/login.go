package statuspage

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/origin"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

const (
	cookieName = "trueup_status"
	// maxForm is the size in bytes above which a login is refused.
	maxForm = 16 << 10
)

// visitor is the session of a request, or a bearer.
type visitor struct {
	// sessionID is empty for a bearer, and actor the one that has opened the session.
	sessionID, actor string
	// until is when the session ends; zero for never.
	until time.Time
}

// enter lets requests with the token or a session through. A browser without is sent
// to the login; a program gets 401.
func (p *Page) enter(next func(http.ResponseWriter, *http.Request, visitor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			admin, refused := p.bearer(r)
			if refused != nil {
				refuse(w, refused)
				return
			}
			origin.Verified(r.Context(), admin.Actor())
			next(w, r, visitor{until: admin.Expires})
			return
		}
		who, err := p.visitor(r)
		switch {
		case err != nil:
			p.fail(w, r, "session", err)
		case who.sessionID != "":
			origin.Verified(r.Context(), who.actor)
			next(w, r, who)
		case r.URL.Path == eventsPath, r.URL.Path == rowsPath:
			unauthorized(w)
		default:
			http.Redirect(w, r, loginPath, http.StatusSeeOther)
		}
	}
}

// bearer returns the administrator whose token the request has, or how it is refused.
func (p *Page) bearer(r *http.Request) (tokens.Admin, *adminapi.Error) {
	const endpoint = "page"
	token, ok := tokens.Bearer(r.Header)
	if !ok {
		return tokens.Admin{}, p.guard.Refused(r, endpoint, token)
	}
	admin, err := p.people.Authenticate(r, p.admins, p.guard, endpoint, token)
	refused, _ := errors.AsType[*adminapi.Error](err)
	return admin, refused
}

// refuse answers a bearer that is refused with a line of text.
func refuse(w http.ResponseWriter, refused *adminapi.Error) {
	if refused.Wait > 0 {
		guard.Refuse(w, refused.Wait)
		return
	}
	if refused.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, refused.Message, refused.Status)
}

// admitted reports whether the token or session of a request is still valid. A database
// that cannot be asked ends nothing.
func (p *Page) admitted(r *http.Request) bool {
	if token, ok := tokens.Bearer(r.Header); ok {
		return p.people.Valid(r.Context(), p.admins, token)
	}
	who, err := p.visitor(r)
	return err != nil || who.sessionID != ""
}

// visitor returns whose cookie the request has; no session if it has none.
func (p *Page) visitor(r *http.Request) (visitor, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil || len(cookie.Value) > maxForm {
		return visitor{}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	return p.sessions.find(ctx, cookie.Value)
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "the admin token is missing or not valid", http.StatusUnauthorized)
}

// loginForm is what the template login shows.
type loginForm struct {
	// Refused is true after a token that is not valid.
	Refused bool
	// SSO is true if people can sign in with OpenID Connect, and Trouble why one could not.
	SSO     bool
	Trouble string
}

func (p *Page) showLogin(w http.ResponseWriter, r *http.Request) {
	if who, err := p.visitor(r); err == nil && who.sessionID != "" {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	p.render(w, r, http.StatusOK, "login", loginForm{SSO: p.people.OnPage()})
}

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			http.Error(w, "the form has more than "+strconv.Itoa(maxForm)+" bytes", http.StatusRequestEntityTooLarge)
			return
		}
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	// Of the body alone: a URL with a token ends up in logs.
	token := strings.TrimSpace(r.PostForm.Get("token"))
	admin, err := p.admins.Find(token)
	if err != nil {
		if wait := p.guard.Failed(r, "login", token); wait > 0 {
			guard.Refuse(w, wait)
			return
		}
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			unauthorized(w)
			return
		}
		p.render(w, r, http.StatusUnauthorized, "login", loginForm{Refused: true, SSO: p.people.OnPage()})
		return
	}
	if p.begin(w, r, admin) {
		http.Redirect(w, r, Path, http.StatusSeeOther)
	}
}

// begin begins a session of the administrator, or has answered why it cannot.
func (p *Page) begin(w http.ResponseWriter, r *http.Request, admin tokens.Admin) bool {
	actor := admin.Actor()
	ctx, cancel := context.WithTimeout(audit.NewContext(r.Context(), actor), requestTimeout)
	defer cancel()
	secret, err := p.sessions.open(ctx, admin)
	if err != nil {
		p.fail(w, r, "login", err)
		return false
	}
	p.used.Note(ctx, admin)
	p.logger.InfoContext(ctx, "login", slog.String("actor", actor), slog.String("from", origin.Address(ctx)))
	p.setCookie(w, r, secret, sessionAge)
	return true
}

func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	who, err := p.visitor(r)
	if err == nil && who.sessionID != "" {
		ctx, cancel := context.WithTimeout(audit.NewContext(r.Context(), who.actor), requestTimeout)
		defer cancel()
		err = p.sessions.end(ctx, who.sessionID)
		p.feed.dismiss(who.sessionID)
	}
	if err != nil {
		p.fail(w, r, "logout", err)
		return
	}
	p.setCookie(w, r, "", -1)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

// setCookie sets the cookie for that long, or removes it.
func (p *Page) setCookie(w http.ResponseWriter, r *http.Request, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: Path, MaxAge: maxAge(age),
		Secure:   secureCookie(r),
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// secureCookie reports whether the browser has asked by HTTPS. A proxy that ends TLS sets the
// header; a client that sets it affects itself alone.
func secureCookie(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// maxAge returns the Max-Age of a cookie that is kept for that long, or removed if it is negative.
func maxAge(age time.Duration) int {
	if age < 0 {
		return -1
	}
	return int(age / time.Second)
}
