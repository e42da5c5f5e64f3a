package statuspage_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

type answer struct {
	status  int
	header  http.Header
	cookies []*http.Cookie
	body    string
}

// get asks for a path, with headers in pairs, and follows no redirect.
func (w *world) get(path string, header ...string) answer {
	w.t.Helper()
	return w.send("GET", path, nil, header...)
}

func (w *world) send(method, path string, form url.Values, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(form.Encode()))
	require.NoError(w.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return answer{response.StatusCode, response.Header, response.Cookies(), string(text)}
}

// login returns the header Cookie of a new session.
func (w *world) login() string {
	w.t.Helper()
	got := w.send("POST", "/status/login", url.Values{"token": {adminToken}})
	require.Equal(w.t, 303, got.status, got.body)
	require.Equal(w.t, "/status", got.header.Get("Location"))
	require.Len(w.t, got.cookies, 1)
	return got.cookies[0].Name + "=" + got.cookies[0].Value
}

// shown returns the page as a bearer sees it.
func (w *world) shown() string {
	w.t.Helper()
	got := w.get("/status", "Authorization", "Bearer "+adminToken)
	require.Equal(w.t, 200, got.status, got.body)
	return got.body
}

// text returns the text of a row, without the markup.
func text(t *testing.T, page, rowID string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `id="`+rowID+`"`)
	require.True(t, found, "no row %s in %s", rowID, page)
	row, _, _ := strings.Cut(rest, "</tr>")
	row = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.TrimPrefix(row, ">"), " ")
	return strings.Join(strings.Fields(row), " ")
}

func TestOnlyWhoHasTheTokenMayLook(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		w.tokens[clusterA], _ = w.admin("PUT", "clusters/"+clusterA, map[string]any{"region": "nyc3"})["token"].(string)
		cookie := w.login()
		for name, test := range map[string]struct {
			header         []string
			status, events int
		}{
			"nothing":            {nil, 303, 401},
			"a bearer":           {[]string{"Authorization", "Bearer " + adminToken}, 200, 200},
			"a bearer in lower":  {[]string{"Authorization", "bearer  " + adminToken}, 200, 200},
			"a wrong bearer":     {[]string{"Authorization", "Bearer " + adminToken + "x"}, 401, 401},
			"a shorter bearer":   {[]string{"Authorization", "Bearer " + adminToken[1:]}, 401, 401},
			"an empty bearer":    {[]string{"Authorization", "Bearer "}, 401, 401},
			"no scheme":          {[]string{"Authorization", adminToken}, 401, 401},
			"basic":              {[]string{"Authorization", "Basic " + adminToken}, 401, 401},
			"an agent's token":   {[]string{"Authorization", "Bearer " + w.tokens[clusterA]}, 401, 401},
			"a wrong bearer and": {[]string{"Authorization", "Bearer x", "Cookie", cookie}, 401, 401},
			"a session":          {[]string{"Cookie", cookie}, 200, 200},
			"an altered session": {[]string{"Cookie", cookie + "x"}, 303, 401},
			"an empty session":   {[]string{"Cookie", "trueup_status="}, 303, 401},
			"the token itself":   {[]string{"Cookie", "trueup_status=" + adminToken}, 303, 401},
		} {
			got := w.get("/status", test.header...)
			require.Equal(t, test.status, got.status, name)
			if got.status != 200 {
				require.NotContains(t, got.body, clusterA, name)
			}
			if got.status == 303 {
				require.Equal(t, "/status/login", got.header.Get("Location"))
			}
			stream := w.open(test.header...)
			require.Equal(t, test.events, stream.status, name)
			stream.close()
		}
		require.Equal(t, 200, w.get("/status/login").status)
		require.Equal(t, 303, w.get("/status/login", "Cookie", cookie).status, "already logged in")
		require.Equal(t, 404, w.get("/status/other", "Cookie", cookie).status)
		require.Equal(t, 404, w.get("/status/assets/page.html", "Cookie", cookie).status, "templates are not files")
		require.Equal(t, 405, w.send("DELETE", "/status", nil, "Cookie", cookie).status)
	})
}

func TestASessionIsACookieThatTellsNothingAndEnds(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		got := w.send("POST", "/status/login", url.Values{"token": {" " + adminToken + "\n"}})
		require.Len(t, got.cookies, 1)
		cookie := got.cookies[0]
		require.True(t, cookie.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
		require.False(t, cookie.Secure, "there is no TLS here")
		require.Equal(t, "/status", cookie.Path)
		require.Equal(t, 12*60*60, cookie.MaxAge)
		require.NotContains(t, cookie.Value, adminToken)
		require.GreaterOrEqual(t, len(cookie.Value), 43, "256 bits")
		require.NotEqual(t, cookie.Value, strings.TrimPrefix(w.login(), "trueup_status="))
		require.True(t, w.send("POST", "/status/login", url.Values{"token": {adminToken}}, "X-Forwarded-Proto", "https").cookies[0].Secure)

		header := "trueup_status=" + cookie.Value
		require.Equal(t, 200, w.get("/status", "Cookie", header).status)
		require.Equal(t, 405, w.get("/status/logout", "Cookie", header).status, "a link logs nobody out")
		out := w.send("POST", "/status/logout", url.Values{}, "Cookie", header)
		require.Equal(t, 303, out.status)
		require.Equal(t, -1, out.cookies[0].MaxAge)
		require.Equal(t, 303, w.get("/status", "Cookie", header).status, "the server has forgotten it")
		require.Equal(t, 303, w.send("POST", "/status/logout", url.Values{}, "Cookie", header).status, "twice is once")

		// Expired on the server, whatever the browser keeps.
		header = w.login()
		require.Equal(t, 200, w.get("/status", "Cookie", header).status)
		require.NoError(t, w.database.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE status_sessions SET expires_at = 1`)
			return err
		}))
		require.Equal(t, 303, w.get("/status", "Cookie", header).status)

		// Another token: all sessions of the old one are void.
		header = w.login()
		other, err := statuspage.New(statuspage.Config{Database: w.database, Admins: tokens.Only(adminToken + " of tomorrow")})
		require.NoError(t, err)
		w.url = serveHandler(t, other)
		require.Equal(t, 303, w.get("/status", "Cookie", header).status)

		// Both tokens: the sessions of each.
		both, err := statuspage.New(
			statuspage.Config{Database: w.database, Admins: tokens.Only(adminToken+" of tomorrow", adminToken)},
		)
		require.NoError(t, err)
		w.url = serveHandler(t, both)
		require.Equal(t, 200, w.get("/status", "Cookie", header).status)
	})
}

func TestALoginNeedsTheTokenInTheFormAndTheSameOrigin(t *testing.T) {
	t.Parallel()
	var refused bytes.Buffer
	attempts, err := guard.New(guard.Config{Logger: slog.New(slog.NewTextHandler(&refused, nil))})
	require.NoError(t, err)
	w := small(t, statuspage.Config{Guard: attempts})
	right := url.Values{"token": {adminToken}}
	for name, test := range map[string]struct {
		path   string
		form   url.Values
		header []string
		status int
	}{
		"no token":             {"/status/login", url.Values{}, nil, 401},
		"a wrong token":        {"/status/login", url.Values{"token": {"wrong-" + adminToken}}, nil, 401},
		"a token in the URL":   {"/status/login?token=" + adminToken, url.Values{}, nil, 401},
		"a form that is long":  {"/status/login", url.Values{"token": {strings.Repeat("x", 20<<10)}}, nil, 413},
		"another site":         {"/status/login", right, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"a sister site":        {"/status/login", right, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"another origin":       {"/status/login", right, []string{"Origin", "https://evil.example.com"}, 403},
		"a logout from abroad": {"/status/logout", url.Values{}, []string{"Sec-Fetch-Site", "cross-site", "Cookie", w.login()}, 403},
		"this site":            {"/status/login", right, []string{"Sec-Fetch-Site", "same-origin"}, 303},
		"this origin":          {"/status/login", right, []string{"Origin", w.url}, 303},
	} {
		got := w.send("POST", test.path, test.form, test.header...)
		require.Equal(t, test.status, got.status, name)
		require.Equal(t, test.status == 303, len(got.cookies) == 1, name)
		require.NotContains(t, got.body, adminToken, name)
	}
	require.Contains(t, w.send("POST", "/status/login", url.Values{}, "Accept", "text/html,*/*").body, `role="alert"`)
	require.Contains(t, refused.String(), "endpoint=login failures=1")
	require.NotContains(t, refused.String(), adminToken)
	require.NotContains(t, w.log.String(), adminToken)
}

func TestEveryAnswerIsSealed(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{})
	cookie := w.login()
	for _, path := range []string{"/status", "/status/login", "/status/nothing", "/status/assets/style.css", "/status/assets/script.js", "/status/assets/icon.svg"} {
		for _, header := range [][]string{nil, {"Cookie", cookie}} {
			got := w.get(path, header...)
			policy := got.header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'", path)
			require.Contains(t, policy, "frame-ancestors 'none'", path)
			require.NotContains(t, policy, "unsafe", path)
			require.NotContains(t, policy, "data:", path)
			require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"), path)
			if strings.HasPrefix(path, "/status/assets/") {
				require.Equal(t, 200, got.status, path)
			} else {
				require.Equal(t, "no-store", got.header.Get("Cache-Control"), path)
			}
			if strings.Contains(got.header.Get("Content-Type"), "html") {
				require.NotRegexp(t, `(?i)<style|style=|<script>| on[a-z]+=|https?://|javascript:`, got.body, path)
			}
		}
	}
	require.NotRegexp(t, `(?i)@import|url\(|https?://`, w.get("/status/assets/style.css").body)
	require.NotRegexp(t, `(?i)https?://|eval\(|import\(`, w.get("/status/assets/script.js").body)
}

func TestTheFirstPaintHasEverything(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{Silence: time.Hour}, func(w *world) {
		t := w.t
		empty := w.shown()
		require.Equal(t, 2, strings.Count(empty, "No cluster is registered."))
		require.Contains(t, empty, "No region is registered.")
		w.seed()
		w.fill()
		var page string
		await.Until(
			t,
			eventually,
			"strings.Contains(page, clusterD) && strings.Contains(page, \"reg_us\") && strings.Contains(text(t, page, \"region-reg_eu\"), \" 3 – – 0 3 \")",
			func() bool {
				w.call("POST", "/ctrl.v1.ClusterService/Heartbeat", w.tokens["eu"], map[string]any{})
				page = w.shown()
				return strings.Contains(page, clusterD) && strings.Contains(page, "reg_us") &&
					strings.Contains(text(t, page, "region-reg_eu"), " 3 – – 0 3 ")
			},
		)
		ago := `\d+ (s|min) ago \d\d:\d\d:\d\d UTC`
		require.Regexp(t, `^nyc3 `+clusterA+` in step 6 6 6 0 `+ago+` `+ago+` 4 3 healthy 1 progressing 0 0$`, text(t, page, "cluster-"+clusterA))
		require.Regexp(
			t,
			`^fra1 `+clusterB+` failing 5 5 5 0 `+ago+` `+ago+` 3 1 healthy 1 failed 1 rejected 0 1$`,
			text(t, page, "cluster-"+clusterB),
		)
		require.Regexp(t, `^sgp1 `+clusterC+` held 7 6 6 1 `+ago+` `+ago+` 2 2 healthy 1 0$`, text(t, page, "cluster-"+clusterC))
		hold := text(t, page, "hold-"+clusterC)
		require.Contains(t, hold, "2 deletions wait for an approval, such as service shop : ")
		require.Contains(t, hold, `controlplane approve cluster `+clusterC+` held-1 approves exactly these.`)
		require.Equal(t, `lon1 `+clusterD+` never seen 3 – – – never never 1 1 unknown 0 0`, text(t, page, "cluster-"+clusterD))
		require.Regexp(
			t,
			`^eu-1 reg_eu failing aws cell-a `+ago+` 3 – – 0 3 2 running 1 pending 1 failed 0 none$`,
			text(t, page, "region-reg_eu"),
		)
		failed := text(t, page, "failed-reg_eu")
		require.Contains(t, failed, "1 instance has failed")
		require.Contains(t, failed, "app-0-d 7 restarts container web was restarted 7 times: ")
		require.NotContains(t, page, evil[:25])
		require.NotContains(t, page, "\u202e")
		require.Equal(t, `us-1 reg_us never seen gcp none never 0 – – 0 0 none 0 none`, text(t, page, "region-reg_us"))
		require.Equal(t, 4, strings.Count(page, "<table "))
		require.Equal(t, 4, strings.Count(page, "<caption>"))
		require.Equal(t, 36, strings.Count(page, `scope="col"`))
		require.Equal(t, 10, strings.Count(page, `scope="row"`))
		require.Contains(t, page, "<b>312</b> of 1,000 pods (31 %)")
		require.Contains(t, page, "<b>860</b> of 1,000 pods (86 %)")

		// What agents say is only ever text.
		require.NotContains(t, page, "<script>")
		require.NotContains(t, page, "\u202e")
		require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;")

		session := w.get("/status", "Cookie", w.login())
		require.Contains(t, session.body, "Log out")
		for _, said := range []string{page, session.body, w.log.String()} {
			require.NotContains(t, said, adminToken)
			for name, token := range w.tokens {
				require.NotContains(t, said, token, name)
			}
		}
	})
}

func TestSilenceIsShown(t *testing.T) {
	t.Parallel()
	w := small(t, statuspage.Config{Silence: time.Nanosecond})
	w.seed()
	page := w.shown()
	for clusterID, state := range map[string]string{clusterA: "silent", clusterB: "silent", clusterD: "never seen"} {
		require.Contains(t, text(t, page, "cluster-"+clusterID), " "+state+" ")
	}
	// In the table of regions package cluster decides it.
	require.NoError(t, w.database.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE regions SET heartbeat_at = 1 WHERE id = 'reg_eu'`)
		return err
	}))
	await.Until(
		t,
		eventually,
		`strings.Contains(row, " silent ") && strings.Contains(row, " 4 inactive ") && !strings.Contains(row, "running")`,
		func() bool {
			row := text(t, w.shown(), "region-reg_eu")
			return strings.Contains(row, " silent ") && strings.Contains(row, " 4 inactive ") && !strings.Contains(row, "running")
		},
	)
}

func TestAWrongConfigNamesItsField(t *testing.T) {
	t.Parallel()
	_, err := statuspage.New(statuspage.Config{Admins: tokens.Only(adminToken)})
	require.ErrorContains(t, err, "statuspage.Config: Database")
	_, err = statuspage.New(statuspage.Config{Database: small(t, statuspage.Config{}).database, Admins: tokens.Only("short")})
	require.ErrorContains(t, err, "statuspage.Config: Admins")
}

// TestTheReadinessOfTheLogIsShown has each state of the change log in turn.
func TestTheReadinessOfTheLogIsShown(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[regions.LogState]
	now.Store(&regions.LogState{})
	w := small(
		t,
		statuspage.Config{Interval: time.Nanosecond, Log: func(context.Context) (regions.LogState, error) { return *now.Load(), nil }},
	)
	line := func() string { return text(t, w.shown(), "change-log") }
	require.Contains(t, line(), "ready 0 changes wait for a version.")
	require.NotContains(t, line(), "epoch")
	now.Store(&regions.LogState{Depth: 1, Oldest: 100 * time.Millisecond})
	require.Contains(t, line(), "ready 1 change waits for a version, the oldest for 0 s.")
	now.Store(&regions.LogState{Depth: 1234, Oldest: 4 * time.Second})
	require.Contains(t, line(), "behind 1,234 changes wait for a version, the oldest for 4 s.")
	now.Store(&regions.LogState{NotReady: "committed changes get no version for 12s", Depth: 7, Oldest: 12 * time.Second})
	require.Contains(
		t,
		line(),
		"not ready committed changes get no version for 12s : agents of regions get no change, and /readyz fails. 7 changes wait",
	)
	now.Store(&regions.LogState{Epochs: 1, EpochAt: time.Now().Add(-3 * time.Minute)})
	require.Contains(t, line(), "The epoch has changed once since this replica started, 3 min ago")
	require.NotContains(t, small(t, statuspage.Config{}).shown(), "change-log")
}

func TestAMinuteWithoutBillingRecordsIsSeen(t *testing.T) {
	t.Parallel()
	each(t, statuspage.Config{}, func(w *world) {
		t := w.t
		w.register(clusterA, "nyc3", 2)
		w.register(clusterB, "fra1", 2)
		w.register(clusterC, "sgp1", 2)
		now := time.Now().Truncate(time.Minute)
		for minutes := 9; minutes >= 1; minutes-- {
			if minutes != 4 && minutes != 5 {
				w.bill(clusterA, 10-minutes, now.Add(-time.Duration(minutes)*time.Minute))
				w.bill(clusterA, 10-minutes, now.Add(-time.Duration(minutes)*time.Minute)) // the answer was lost
			}
		}
		w.bill(clusterB, 1, now.Add(-time.Minute))
		page := w.shown()
		require.Contains(t, text(t, page, "load-"+clusterC), "no record in the last hour")
		seen := text(t, page, "load-"+clusterA)
		require.Contains(t, seen, "9 records in the last minute, 2 minutes have none")
		require.Contains(t, seen, "1 to 9 a minute")
		require.Contains(t, text(t, page, "load-"+clusterB), "1 record in the last minute")
		require.NotContains(t, text(t, page, "load-"+clusterB), "minutes have")
	})
}
