package statuspage

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
)

const (
	ssoPath = Path + "/sso"
	// attemptCookie begins the name of the cookie with a sign-in that a browser has begun. The rest
	// is of the state: each tab has its own.
	attemptCookie = "trueup_sign_in_"
	// attemptAge is how long a person may take to sign in at the issuer.
	attemptAge = 10 * time.Minute
)

// beginSSO sends the browser to the issuer, with a cookie that binds the sign-in to it.
func (p *Page) beginSSO(w http.ResponseWriter, r *http.Request) {
	if !p.people.OnPage() {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	to, attempt, err := p.people.Begin(ctx)
	if err != nil {
		p.logger.WarnContext(ctx, "sign-in not begun", slog.Any("error", err))
		p.refuseSSO(w, r, http.StatusServiceUnavailable, "The issuer cannot be reached just now. Try again, or log in with a token.")
		return
	}
	p.setAttempt(w, r, attempt.State, attempt.String(), attemptAge)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// endSSO is where the issuer sends the browser back to. It leads to the page and nowhere else.
func (p *Page) endSSO(w http.ResponseWriter, r *http.Request) {
	if !p.people.OnPage() {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	var attempt oidcauth.Attempt
	query := r.URL.Query()
	state := query.Get("state")
	if cookie, err := r.Cookie(attemptName(state)); err == nil {
		attempt, _ = oidcauth.ParseAttempt(cookie.Value)
		p.setAttempt(w, r, state, "", -1) // it is used once
	}
	admin, err := p.people.Finish(ctx, attempt, state, query.Get("code"), query.Get("error"))
	if refused := p.people.Refused(r, p.guard, "login", query.Get("code"), err); refused != nil {
		if refused.Status >= http.StatusInternalServerError {
			p.logger.WarnContext(ctx, "sign-in not finished", slog.Any("error", err))
		}
		p.refuseSSO(w, r, refused.Status, refused.Message)
		return
	}
	if !p.begin(w, r, admin) {
		return
	}
	// A redirect would still be the navigation that the issuer has begun, to which a browser does
	// not send the session's cookie, which is Strict. The document that this answers begins
	// another.
	p.render(w, r, http.StatusOK, "welcome", admin.Name)
}

// refuseSSO shows the login with the reason why a person could not sign in.
func (p *Page) refuseSSO(w http.ResponseWriter, r *http.Request, status int, why string) {
	p.render(w, r, status, "login", loginForm{SSO: true, Trouble: why})
}

// attemptName returns the name of the cookie of a sign-in with this state.
func attemptName(state string) string {
	const letters = 16
	return attemptCookie + tokens.Hash(state)[:letters]
}

// setAttempt sets the cookie of a sign-in, or removes it. It is Lax: the issuer leads the browser
// back.
func (p *Page) setAttempt(w http.ResponseWriter, r *http.Request, state, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: attemptName(state), Value: value, Path: ssoPath, MaxAge: maxAge(age),
		Secure: secureCookie(r) || p.people.Secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
