package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const castHead = `{"version":2,"width":10,"height":5}` + "\n"

func TestScreen(t *testing.T) {
	t.Parallel()
	red, title := styles()["31"], style{styles()["32"][0], styles()["1"][1]}
	for _, test := range []struct {
		name, text string
		want       [][]cell
	}{
		{"colours", "\x1b[31ma\x1b[0mb\x1b[1;32mc\x1b[md", [][]cell{{{'a', red}, {char: 'b'}, {'c', title}, {char: 'd'}}}},
		{"faint", "\x1b[2m…", [][]cell{{{'…', styles()["2"]}}}},
		{"lines", "a\r\n\r\nb", [][]cell{{{char: 'a'}}, nil, {{char: 'b'}}}},
		{"a line of progress is replaced", "abc\r\x1b[Kd", [][]cell{{{char: 'd'}}}},
		{"a shorter text leaves the rest", "abc\rd", [][]cell{{{char: 'd'}, {char: 'b'}, {char: 'c'}}}},
		{"a line feed alone", "a\nb", [][]cell{{{char: 'a'}}, {{char: ' '}, {char: 'b'}}}},
		{"a long line", "abcde", [][]cell{{{char: 'a'}, {char: 'b'}, {char: 'c'}, {char: 'd'}}, {{char: 'e'}}}},
		{"a full line ends once", "abcd\r\ne", [][]cell{{{char: 'a'}, {char: 'b'}, {char: 'c'}, {char: 'd'}}, {{char: 'e'}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &screen{width: 4, lines: [][]cell{nil}}
			require.NoError(t, s.write(test.text))
			require.Equal(t, test.want, s.lines)
		})
	}
	for _, text := range []string{"\x1b[35m", "\x1b[2J", "\x1b]0;title", "\a", "\x1b[1K"} {
		require.ErrorIs(t, (&screen{width: 4, lines: [][]cell{nil}}).write(text), errUnknown, "%q", text)
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	picture, err := draw([]byte(castHead + `[0,"o","  a<b &  \u001b[31m…\u001b[0md\r\n"]` + "\n"))
	require.NoError(t, err)
	require.Contains(t, string(picture), `viewBox="0 0 116 72"`, "the last line is not begun")
	require.Contains(t, string(picture), `<text y="31"><tspan x="32.8" textLength="42.0">a&lt;b &amp;</tspan>`, "columns 2 to 6")
	require.Contains(t, string(picture), `<tspan x="91.6" textLength="8.4" fill="#ff7b72">…</tspan></text>`, "column 9")
	require.Contains(t, string(picture), `<text y="51"><tspan x="16.0" textLength="8.4">d</tspan></text>`, "column 0")

	for _, cast := range []string{"", "{}", castHead + "[", castHead + `[0,"o","\u0007"]`} {
		_, err := draw([]byte(cast))
		require.Error(t, err, cast)
	}
}

// The picture in the pages is of the recording beside it: make record, or with -draw.
func TestPicture(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	cast, err := os.ReadFile(filepath.Join(root, castFile))
	require.NoError(t, err)
	want, err := draw(cast)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, pictureFile))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}
