package statesynctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// TestRunReaderFindsWhatIsWrongWithAReader plants faults into the reader in Python, which passes
// every check without them: see package readers.
func TestRunReaderFindsWhatIsWrongWithAReader(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		const how = "python3 is not installed (Debian: apt-get install python3)"
		require.NotEqual(t, "1", os.Getenv("TRUEUP_REQUIRE_SERVICES"), how)
		t.Skip(how)
	}
	text, err := os.ReadFile("../readers/python/trueup_statesync.py")
	require.NoError(t, err)
	const silent = "does not come back"
	faults := []struct{ name, says, from, to, check string }{
		{
			"ignores the digest", "the reader has", `(len(live.items), live.digest())`, `(len(live.items), field(frame, "digest", str))`,
			"a lost item is found by the digest",
		},
		{"ignores the count", silent, `(field(frame, "count"), `, `(len(live.items), `, "a wrong count is refused"},
		{"ignores gaps", silent, `epoch != self.stream or after != self.at or`, `epoch != self.stream or`, "a lost frame is found"},
		{"resumes without a mark", "mark: is \"\"", `"mark": self.mark}`, `"mark": ""}`, "a cut stream goes on from its cursor and mark"},
		{"lists after each cut", "after: is \"\"", `self.end = outage`, `self.copy.doubt()`, "a cut stream goes on from its cursor and mark"},
		{
			"deletes at a resync before synced", "the reader has 0 items", `                self.copy.doubt(`,
			`                yield State(self.copy.epoch, self.copy.version, {}, set(), set(self.copy.proven))
                self.copy.doubt(`,
			"a restore leads to a list, and absent keys are reported once it is proven",
		},
		{
			"orders the deletion of what is absent", "which no tombstone says", `State(epoch, version, dict(live.items), self.deleted, gone)`,
			`State(epoch, version, dict(live.items), self.deleted | gone, set())`, "a cursor below the floor leads to a list",
		},
		{
			"says nothing of absent keys", "neither deleted nor absent", `if kind == "synced" else set()`, `if kind == "other" else set()`,
			"a restore leads to a list, and absent keys are reported once it is proven",
		},
		{
			"says nothing of tombstones",
			"neither deleted nor absent",
			`(self.deleted.add if deleted else`,
			`(self.deleted.discard if deleted else`,
			"a tombstone is an order",
		},
		{
			"says twice that a key is gone", "which a tombstone says is deleted", `live.items.keys() - self.deleted if kind`,
			`live.items.keys() if kind`, "a tombstone in a list is an order",
		},
		{
			"passes over the tombstones of a list", "after a list with a tombstone of 2", `(self.deleted.add if deleted else`,
			`(self.deleted.add if deleted and not self.list else`, "a tombstone in a list is an order",
		},
		{
			"takes a list that is not proven", "the reader has", `if proves and (`, `if proves and kind != "synced" and (`,
			"a list that is not proven is not taken",
		},
		{
			"takes a part of a commit", "never had it", `proves = not more and (kind == "synced" or not self.list)
        if proves and (`,
			`proves = kind == "synced" or not self.list
        if proves and not more and (`, "a commit is whole",
		},
		{
			"takes a server that is behind",
			silent,
			`epoch == self.seen[0] and head < self.seen[1]`,
			`False`,
			"a server behind its past is refused",
		},
		{"goes on after 401", "comes back at once", `raise Stopped(`, `raise Outage(`, "401 stops requests"},
		{"goes on after 403", "comes back at once", `status in (401, 403)`, `status == 401`, "403 of a proxy stops requests"},
		{
			"believes a proxy",
			"after: is \"\"",
			`if code in ("unknown_scope",`,
			`if status == 404 or code in ("unknown_scope",`,
			"a 404 of a proxy proves nothing",
		},
		{
			"takes an unknown scope for an empty one", "the reader has 0 items", `                self.copy.doubt(`,
			`                if "unknown" in str(refused): yield State(self.copy.epoch, self.copy.version, {}, set(), set())
                self.copy.doubt(`,
			"an unknown scope keeps the state, and is listed when it is back",
		},
		{
			"stops at a login page",
			"it has ended",
			`(Outage, OSError, http.client.HTTPException, ValueError, `,
			`(Outage, OSError, http.client.HTTPException, `,
			"a login page is an outage",
		},
		{
			"follows a redirect", "follows a redirect", `            if answer.status != 200:`, `            if answer.status == 307:
                __import__("urllib.request").request.urlopen(answer.headers["Location"]).close()
            if answer.status != 200:`, "a redirect is not followed",
		},
		{"takes nanoseconds for microseconds", silent, `/ 1e9`, `/ 1e6`, "a silent stream is dead"},
		{"counts bytes as life", silent, `silence() if lines else until`, `silence()`, "bytes without a frame are silence"},
	}
	var found atomic.Int64
	t.Cleanup(func() { fmt.Printf("figure reader_planted_found %d/%d\n", found.Load(), len(faults)) })
	output, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	python = strings.TrimSpace(string(output)) // what was found first may be a script that costs more than the reader
	folder, failures, slots := t.TempDir(), make([]chan error, len(faults)), make(chan struct{}, 8)
	for n, fault := range faults {
		require.Equal(t, 1, strings.Count(string(text), fault.from), "%s: %s", fault.name, fault.from)
		file := filepath.Join(folder, fmt.Sprintf("fault_%d.py", n))
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), fault.from, fault.to, 1)), 0o600))
		failures[n] = make(chan error, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			patience := statesynctest.Limit
			if fault.says == silent {
				patience = 2 * time.Second
			}
			failures[n] <- statesynctest.ReaderFailure(t.Context(), fault.check, statesynctest.Command(python, "-I", "-S", file), patience)
		}()
	}
	for n, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			failure := <-failures[n]
			require.Error(t, failure, "%q does not find it", fault.check)
			require.Regexp(t, fault.says, failure.Error(), "it is found by chance")
			found.Add(1)
		})
	}
}
