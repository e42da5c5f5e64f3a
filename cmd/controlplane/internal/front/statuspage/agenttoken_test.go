package statuspage_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/statuspage"
)

// TestThePagesSayWhenTheTokenOfAnAgentEnds has a quarter of the lifetime as the time from which the
// end needs a look.
func TestThePagesSayWhenTheTokenOfAnAgentEnds(t *testing.T) {
	t.Parallel()
	const lifetime = 720 * time.Hour
	each(t, statuspage.Config{TokenLifetime: lifetime, Interval: time.Nanosecond}, func(w *world) {
		t := w.t
		w.seed()
		for name, test := range map[string]struct {
			until    time.Duration // from now on; 0: the token has no end
			heard    time.Duration // ago; 0: never
			verdict  string
			fact     string
			isListed bool
		}{
			"no end":  {0, time.Second, "", "Agent token has no end", false},
			"renewed": {lifetime/4 + time.Hour, time.Second, "", `Agent token ends 2\d{3}-`, false},
			"not renewed": {
				lifetime/4 - time.Hour, time.Second, `token ends : The agent has not renewed its token`, `Agent token ends 2\d`, true,
			},
			"never seen": {time.Hour, 0, "never seen since", `Agent token ends 2\d{3}-`, false},
			"ended": {
				-time.Hour, 2 * time.Hour, `token ended since 60 min .* silent since 2 h`,
				`Agent token ended 2.*; rotate it: controlplane rotate`, true,
			},
			"ended before use": {-time.Hour, 0, `token ended since 60 min ago .* never seen since`, `Agent token ended 2\d{3}-`, true},
			"another token":    {-time.Hour, time.Second, "", `Agent token ended 2\d{3}-`, false},
		} {
			var until, heard int64
			if test.until != 0 {
				until = time.Now().Add(test.until).UnixMilli()
			}
			if test.heard != 0 {
				heard = time.Now().Add(-test.heard).UnixMilli()
			}
			w.sql(`UPDATE clusters SET terms_of = token_hash, token_until = ?, last_pull_at = ?, reported_at = ?`, until, heard, heard)
			w.sql(`UPDATE regions SET terms_of = token_hash, token_until = ?, heartbeat_at = ?`, until, heard)
			front := plain(w.shown())
			for list, id := range map[string]string{"clusters": clusterA, "regions": "reg_eu"} {
				page := plain(w.seen("/status/" + list + "/" + id))
				require.Regexp(t, test.verdict, page, name)
				require.Regexp(t, test.fact, page, name)
				if test.verdict == "" {
					require.NotRegexp(t, `token (ends|ended) (:|since)`, page, name)
				}
				rows, _, _ := w.placeRows("/status/" + list + "?q=token")
				require.Equal(t, test.isListed, len(rows) > 0, "%s: %s", name, rows)
				require.Equal(t, test.isListed, regexp.MustCompile(`\d token (ends|ended)`).MatchString(front), name)
			}
		}
	})
	w := small(t, statuspage.Config{})
	w.seed()
	w.sql(`UPDATE clusters SET terms_of = token_hash, token_until = 1`)
	require.NotContains(t, plain(w.seen("/status/clusters/"+clusterA)), "Agent token", "tokens have no end")
}
