package statesync_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

var update = flag.Bool("update", false, "rewrite the test vectors of the protocol")

// digestVector is a set of items and its digest, as in testdata/protocol/digest.json.
type digestVector struct {
	Name   string           `json:"name"`
	Items  []statesync.Item `json:"items"`
	Count  int              `json:"count"`
	Digest statesync.Digest `json:"digest"`
}

func digestVectors() []digestVector {
	of := func(version uint64, collection, id string) statesync.Item {
		return statesync.Item{Version: version, Key: statesync.Key{Collection: collection, ID: id}, Value: json.RawMessage("{}")}
	}
	null := of(1, "things", "a")
	null.Value = json.RawMessage("null")
	vectors := []digestVector{
		{Name: "no items", Items: []statesync.Item{}},
		{Name: "one item", Items: []statesync.Item{is("a", 1)}},
		{Name: "a null is a live item", Items: []statesync.Item{null}},
		{Name: "a tombstone counts for nothing", Items: []statesync.Item{is("a", 1), gone("b", 2)}},
		{Name: "several items", Items: []statesync.Item{is("a", 1), is("b", 2), is("c", 70000)}},
		{Name: "collection and ID are apart", Items: []statesync.Item{of(1, "ab", "c"), of(2, "a", "bc")}},
		{Name: "names are UTF-8", Items: []statesync.Item{of(3, "dinge", "größe"), of(9, "事", "\U0001F600/<&>\"\\ ")}},
		{Name: "a large version", Items: []statesync.Item{of(1<<53-1, "things", "a")}},
	}
	for n := range vectors {
		vectors[n].Digest, vectors[n].Count = statesync.DigestOf(vectors[n].Items)
	}
	return vectors
}

// lines are frames as a server sends them.
func lines(t *testing.T, frames ...statesync.Frame) (texts []string) {
	t.Helper()
	for _, f := range frames {
		if f.Type == statesync.FrameHeader {
			f.Heartbeat = 60e9 // no test shall wait for it
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(f))
		texts = append(texts, strings.TrimSpace(text.String()))
	}
	return texts
}

func marked(f statesync.Frame, id string) statesync.Frame {
	f.Mark = statesync.Mark{Version: f.Version, ID: id}
	return f
}

// streamVectors returns the cases of testdata/protocol/streams.json. What a reader must do
// with each is written here, and not taken from our own reader.
func streamVectors(t *testing.T) []statesynctest.Vector {
	t.Helper()
	const e, other, third = epoch("E1"), epoch("E2"), epoch("E3")
	have := []statesync.Item{a1, b2}
	all := []statesync.Item{a1, b2, c3}
	list := []statesync.Frame{e.header(0, 2), e.items(0, a1, b2), marked(e.synced(2, have...), "x")}
	three := marked(e.changes(2, all, c3), "y")
	stream := func(frames ...statesync.Frame) statesynctest.VectorStream {
		return statesynctest.VectorStream{Lines: lines(t, frames...)}
	}
	open := func(frames ...statesync.Frame) statesynctest.VectorStream {
		return statesynctest.VectorStream{Lines: lines(t, frames...), Open: true}
	}
	answer := func(status int, body string) statesynctest.VectorStream {
		return statesynctest.VectorStream{Status: status, Lines: []string{body}}
	}
	after := func(frames []statesync.Frame, more ...statesync.Frame) []statesync.Frame {
		return append(append([]statesync.Frame{}, frames...), more...)
	}
	state := func(e epoch, version uint64, items ...statesync.Item) statesynctest.ReaderState {
		s := statesynctest.ReaderState{
			Epoch:   string(e),
			Version: version,
			Items:   []statesync.Item{},
			Deleted: []statesync.Key{},
			Absent:  []statesync.Key{},
		}
		for _, i := range items {
			if i.Deleted {
				s.Deleted = append(s.Deleted, i.Key)
			} else {
				s.Items = append(s.Items, i)
			}
		}
		return s
	}
	absent := func(s statesynctest.ReaderState, keys ...statesync.Key) statesynctest.ReaderState {
		s.Absent = append(s.Absent, keys...)
		return s
	}
	everything := map[string]string{}
	cursor := func(version, mark string) map[string]string { //nolint:unparam // other calls have others, which it does not see
		return map[string]string{"after": version, "epoch": string(e), "mark": mark}
	}
	ended := func(frames ...statesync.Frame) statesynctest.VectorStream {
		end := `{"type":"end","error":{"code":"resync_required","message":"","reason":"other-epoch"}}`
		return statesynctest.VectorStream{Lines: append(lines(t, frames...), end)}
	}
	const resync = `{"error":{"code":"resync_required","message":"","reason":"other-epoch"}}`
	two, proven := state(e, 2, have...), state(e, 3, all...)
	resumed := e.header(2, 2)
	// refused is a stream that a reader of two gives up at its last frame, and lists.
	refused := func(name, why, refusal string, frames ...statesync.Frame) statesynctest.Vector {
		return statesynctest.Vector{
			Name: name, Why: why, Refusal: refusal, Streams: []statesynctest.VectorStream{open(after(list, frames...)...)},
			States: []statesynctest.ReaderState{two}, Requests: []map[string]string{everything, everything},
		}
	}
	// again is a second stream, which a reader of two asks for with its cursor and gives up.
	again := func(name, why, refusal string, frames ...statesync.Frame) statesynctest.Vector {
		return statesynctest.Vector{
			Name: name, Why: why, Refusal: refusal, Streams: []statesynctest.VectorStream{stream(list...), open(frames...)},
			States: []statesynctest.ReaderState{two}, Requests: []map[string]string{everything, cursor("2", "2-x"), everything},
		}
	}
	// outage is an answer after which a reader of two comes back with its cursor.
	outage := func(name, why string, second statesynctest.VectorStream) statesynctest.Vector {
		return statesynctest.Vector{
			Name: name, Why: why, Streams: []statesynctest.VectorStream{stream(list...), second},
			States: []statesynctest.ReaderState{two}, Requests: []map[string]string{everything, cursor("2", "2-x"), cursor("2", "2-x")},
		}
	}
	// listed is an answer after which a reader of two lists another epoch, in which b is absent.
	listed := func(name, why string, second statesynctest.VectorStream) statesynctest.Vector {
		return statesynctest.Vector{
			Name: name, Why: why,
			Streams: []statesynctest.VectorStream{
				stream(list...), second,
				stream(other.header(0, 1), other.items(0, a1)), // it is cut, and proves nothing
				open(other.header(0, 1), other.items(0, a1), other.synced(1, a1)),
			},
			States:   []statesynctest.ReaderState{two, absent(state(other, 1, a1), b2.Key)},
			Requests: []map[string]string{everything, cursor("2", "2-x"), everything, everything},
		}
	}
	change := func(f statesync.Frame, do func(*statesync.Frame)) statesync.Frame {
		do(&f)
		return f
	}
	part := e.part(2, is("c", 3))
	whole := e.changes(3, []statesync.Item{a1, b2, is("c", 3), is("d", 4)}, is("d", 4))
	vectors := []statesynctest.Vector{
		{
			Name: "list and change", Why: "the list is proven, then the change", Streams: []statesynctest.VectorStream{open(after(list, three)...)},
			States: []statesynctest.ReaderState{two, proven}, Requests: []map[string]string{everything},
		},
		{
			Name: "resume", Why: "the newest mark is kept over a bookmark without one",
			Streams: []statesynctest.VectorStream{stream(after(list, e.bookmark(2, 2, have...))...), open(resumed, three)},
			States:  []statesynctest.ReaderState{two, proven}, Requests: []map[string]string{everything, cursor("2", "2-x")},
		},
		{
			Name: "tombstone", Why: "a tombstone is an order to delete",
			Streams: []statesynctest.VectorStream{open(after(list, e.changes(2, []statesync.Item{b2}, gone("a", 3)))...)},
			States:  []statesynctest.ReaderState{two, state(e, 3, b2, gone("a", 3))}, Requests: []map[string]string{everything},
		},
		{
			Name:     "commit in parts",
			Why:      "a frame with more proves nothing",
			Streams:  []statesynctest.VectorStream{open(after(list, part, whole)...)},
			States:   []statesynctest.ReaderState{two, state(e, 4, a1, b2, is("c", 3), is("d", 4))},
			Requests: []map[string]string{everything},
		},
		{
			Name:    "cut inside a commit",
			Why:     "the cursor has the version of the part and the mark of before",
			Streams: []statesynctest.VectorStream{stream(after(list, part)...), open(e.header(3, 4), whole)},
			States: []statesynctest.ReaderState{
				two,
				state(e, 4, a1, b2, is("c", 3), is("d", 4)),
			},
			Requests: []map[string]string{everything, cursor("3", "2-x")},
		},
		{
			Name: "bookmark moves", Why: "a bookmark passes changes of other collections",
			Streams: []statesynctest.VectorStream{stream(after(list, marked(e.bookmark(2, 9, have...), "z"))...), open(e.header(9, 9))},
			States:  []statesynctest.ReaderState{two, state(e, 9, have...)}, Requests: []map[string]string{everything, cursor("9", "9-z")},
		},
		{
			Name: "key twice in a list", Why: "a change during the list replaces the item",
			Streams: []statesynctest.VectorStream{open(e.header(0, 2), e.items(0, a1, b2), e.items(2, is("a", 3)), e.synced(3, b2, is("a", 3)))},
			States:  []statesynctest.ReaderState{state(e, 3, b2, is("a", 3))}, Requests: []map[string]string{everything},
		},
		refused("lost frame", "the tombstone of a key that was not there leaves count and digest as they are", "gap", e.bookmark(3, 3, have...)),
		refused(
			"frame of another epoch",
			"all frames of a stream have one epoch",
			"gap",
			change(three, func(f *statesync.Frame) { f.Epoch = "E2" }),
		),
		refused(
			"versions fall",
			"items ascend",
			"gap",
			e.changes(2, []statesync.Item{a1, b2, is("c", 4), is("d", 3), is("e", 5)}, is("c", 4), is("d", 3), is("e", 5)),
		),
		refused("version below after", "no frame moves back", "gap", e.bookmark(2, 1, have...)),
		refused("item of before", "items begin above after", "gap", e.changes(2, []statesync.Item{b2, is("a", 2), c3}, is("a", 2), c3)),
		refused(
			"version above the frame",
			"items end at the version of the frame",
			"gap",
			change(three, func(f *statesync.Frame) { f.Items = []statesync.Item{is("c", 4)} }),
		),
		refused("wrong digest", "the items are others", "proof", e.changes(2, []statesync.Item{a1, b2, is("d", 3)}, c3)),
		refused("wrong count", "the digest is right", "proof", change(three, func(f *statesync.Frame) { f.Count++ })),
		refused("wrong digest of a heartbeat", "a bookmark proves the state, too", "proof", e.bookmark(2, 2, a1)),
		refused(
			"no digest",
			"a frame without more has count and digest",
			"proof",
			change(three, func(f *statesync.Frame) { f.Digest, f.Count = statesync.Digest{}, 0 }),
		),
		refused("second header", "a header is first", "place", e.header(2, 2)),
		refused("items after synced", "a list ends once", "place", change(three, func(f *statesync.Frame) { f.Type = statesync.FrameItems })),
		refused(
			"unknown type",
			"a type of frame that is not known may mean anything",
			"place",
			change(three, func(f *statesync.Frame) { f.Type = "surprise" }),
		),
		{
			Name: "frame twice", Why: "after is not the end of the frame before", Refusal: "gap",
			Streams: []statesynctest.VectorStream{open(after(list, three, three)...)},
			States:  []statesynctest.ReaderState{two, proven}, Requests: []map[string]string{everything, everything},
		},
		again("no header", "a header is first", "place", three),
		again("header elsewhere", "a stream that resumes begins at the cursor", "header", e.header(1, 2)),
		again("header of another epoch", "a cursor of another epoch ends in resync_required", "header", other.header(2, 2)),
		again("server behind", "the head fell in one epoch", "behind", e.header(2, 1)),
		{
			Name:    "list of a server behind",
			Why:     "the old state must not come back, not even after a list that was cut",
			Refusal: "behind",
			Streams: []statesynctest.VectorStream{
				stream(after(list, three)...), answer(410, `{"error":{"code":"resync_required","message":"","reason":"below-floor"}}`),
				stream(e.header(0, 3), e.items(0, a1)), open(e.header(0, 2), e.items(0, a1, b2), e.synced(2, have...)),
			},
			States: []statesynctest.ReaderState{
				two,
				proven,
			},
			Requests: []map[string]string{everything, cursor("3", "3-y"), everything, everything, everything},
		},
		{
			Name:    "list that is not proven",
			Why:     "the first state is the first that is proven",
			Refusal: "proof",
			Streams: []statesynctest.VectorStream{
				open(e.header(0, 2), e.items(0, a1), change(e.synced(2, have...), func(f *statesync.Frame) { f.After = 1; f.Version = 1 })),
				open(list...),
			},
			States:   []statesynctest.ReaderState{two},
			Requests: []map[string]string{everything, everything},
		},
		{
			Name:    "heartbeat within a list",
			Why:     "it proves nothing yet",
			Streams: []statesynctest.VectorStream{open(e.header(0, 2), e.items(0, a1), e.bookmark(1, 1), e.items(1, b2), e.synced(2, have...))},
			States:  []statesynctest.ReaderState{two}, Requests: []map[string]string{everything},
		},
		{
			Name:    "synced moves",
			Why:     "what it passes was not sent",
			Refusal: "place",
			Streams: []statesynctest.VectorStream{
				open(e.header(0, 3), e.items(0, a1, b2), change(e.synced(3, have...), func(f *statesync.Frame) { f.After = 2 })),
				open(e.header(0, 3), e.items(0, all...), e.synced(3, all...)),
			},
			States:   []statesynctest.ReaderState{proven},
			Requests: []map[string]string{everything, everything},
		},
		{
			Name:    "epoch that was left",
			Why:     "a server that did not see the restore",
			Refusal: "behind",
			Streams: []statesynctest.VectorStream{
				stream(list...), answer(410, resync),
				stream(other.header(0, 1), other.items(0, a1), marked(other.synced(1, a1), "o")),
				answer(410, resync), open(list...),
			},
			States: []statesynctest.ReaderState{two, absent(state(other, 1, a1), b2.Key)},
			Requests: []map[string]string{
				everything, cursor("2", "2-x"), everything,
				{"after": "1", "epoch": string(other), "mark": "1-o"},
				everything, everything,
			},
		},
		{
			Name:    "epoch that was left before another",
			Why:     "of two restores a server has seen neither",
			Refusal: "behind",
			Streams: []statesynctest.VectorStream{
				ended(list...), ended(other.header(0, 1), other.items(0, a1), marked(other.synced(1, a1), "o")),
				ended(third.header(0, 1), third.items(0, a1), marked(third.synced(1, a1), "p")), open(list...),
			},
			States:   []statesynctest.ReaderState{two, absent(state(other, 1, a1), b2.Key), state(third, 1, a1)},
			Requests: []map[string]string{everything, everything, everything, everything, everything},
		},
		{
			Name:    "changes before synced",
			Why:     "the list is not complete",
			Refusal: "place",
			Streams: []statesynctest.VectorStream{
				open(e.header(0, 2), change(e.items(0, a1, b2), func(f *statesync.Frame) { f.Type = statesync.FrameChanges })),
				open(list...),
			},
			States:   []statesynctest.ReaderState{two},
			Requests: []map[string]string{everything, everything},
		},
		outage(
			"half a line",
			"a line that is cut is no frame",
			statesynctest.VectorStream{Lines: append(lines(t, resumed), lines(t, three)[0][:90])},
		),
		outage("login page", "an answer without frames is an outage", statesynctest.VectorStream{Lines: []string{"<!doctype html>", "<form>"}}),
		outage(
			"a number as text",
			"fields have types",
			statesynctest.VectorStream{
				Lines: append(lines(t, resumed), `{"type":"bookmark","epoch":"E1","after":"2","version":2,"head":2}`),
				Open:  true,
			},
		),
		outage(
			"end of age",
			"the server ends a stream",
			statesynctest.VectorStream{Lines: append(lines(t, resumed), `{"type":"end","error":{"code":"end","message":"","reason":"age"}}`)},
		),
		outage("unavailable", "the log cannot be read", answer(503, `{"error":{"code":"unavailable","message":"","reason":"log"}}`)),
		outage("404 of a proxy", "it says nothing about the scope", answer(404, "page not found")),
		outage("redirect", "it is not followed", answer(302, "")),
		listed(
			"other epoch",
			"absent keys are reported once the new list is proven",
			answer(410, `{"error":{"code":"resync_required","message":"","reason":"other-epoch"}}`),
		),
		listed("other epoch within a stream", "the last line says so", statesynctest.VectorStream{
			Lines: append(lines(t, resumed), `{"type":"end","error":{"code":"resync_required","message":"","reason":"other-epoch"}}`),
		}),
		listed(
			"unknown scope",
			"the state is kept, and listed when the scope is back",
			answer(404, `{"error":{"code":"unknown_scope","message":""}}`),
		),
	}
	for _, d := range digestVectors() {
		head := uint64(0)
		frames := []statesync.Frame{e.header(0, 0)}
		if len(d.Items) > 0 {
			head = d.Items[len(d.Items)-1].Version
			frames = []statesync.Frame{e.header(0, head), e.items(0, d.Items...)}
		}
		vectors = append(vectors, statesynctest.Vector{
			Name: "digest: " + d.Name, Why: "it is that of digest.json",
			Streams:  []statesynctest.VectorStream{open(append(frames, e.synced(head, d.Items...))...)},
			States:   []statesynctest.ReaderState{state(e, head, d.Items...)},
			Requests: []map[string]string{everything},
		})
	}
	return vectors
}

// TestTheVectorsOfTheProtocolAreThoseOfThisCode finds files that are stale. Package readers
// plays them to our own reader and to those in other languages.
func TestTheVectorsOfTheProtocolAreThoseOfThisCode(t *testing.T) {
	for file, vectors := range map[string]any{"digest.json": digestVectors(), "streams.json": streamVectors(t)} {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		require.NoError(t, encoder.Encode(vectors))
		file = "testdata/protocol/" + file
		if *update {
			require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
		}
		stored, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(stored), text.String(), "%s: go test ./statesync -run Vectors -update writes it again", file)
	}
}
