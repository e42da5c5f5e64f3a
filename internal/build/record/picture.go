package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A style is what SGR sequences have set, as attributes: colour, weight, opacity.
type style [3]string

// styles returns those of the sequences, for the background of the picture.
func styles() map[string]style {
	return map[string]style{
		"1": {1: ` font-weight="bold"`}, "2": {2: ` opacity="0.65"`},
		"31": {` fill="#ff7b72"`}, "32": {` fill="#56d364"`}, "33": {` fill="#e3b341"`},
	}
}

type cell struct {
	char  rune
	style style
}

// A screen is what a terminal of endless height shows.
type screen struct {
	width  int
	lines  [][]cell // the last one is written
	column int      // of the next character
	style  style
}

var (
	errUnknown = errors.New("the drawing does not know this")
	sequence   = regexp.MustCompile(`^\x1b\[([0-9;]*)([A-Za-z])`)
)

// write shows a text with its sequences.
func (s *screen) write(text string) error {
	for text != "" {
		char, size := utf8.DecodeRuneInString(text)
		found, last := sequence.FindStringSubmatch(text), &s.lines[len(s.lines)-1]
		switch {
		case found != nil && found[1]+found[2] == "K":
			*last = (*last)[:min(s.column, len(*last))]
		case found != nil && found[2] == "m":
			if err := s.paint(found[1]); err != nil {
				return err
			}
		case char == '\r':
			s.column = 0
		case char == '\n':
			s.lines = append(s.lines, nil)
		case char < ' ':
			return fmt.Errorf("%w: %.20q", errUnknown, text)
		default:
			s.put(char)
		}
		if found != nil {
			size = len(found[0])
		}
		text = text[size:]
	}
	return nil
}

func (s *screen) put(char rune) {
	if s.column == s.width {
		s.lines, s.column = append(s.lines, nil), 0
	}
	last := &s.lines[len(s.lines)-1]
	for len(*last) <= s.column {
		*last = append(*last, cell{char: ' '})
	}
	(*last)[s.column] = cell{char, s.style}
	s.column++
}

func (s *screen) paint(numbers string) error {
	for number := range strings.SplitSeq(numbers, ";") {
		set, ok := styles()[number]
		if number == "" || number == "0" {
			s.style, ok = style{}, true
		}
		if !ok {
			return fmt.Errorf("%w: SGR %s", errUnknown, numbers)
		}
		for i, attribute := range set {
			if attribute != "" {
				s.style[i] = attribute
			}
		}
	}
	return nil
}

// Sizes of the picture.
const (
	charWidth  = 8.4
	lineHeight = 20
	margin     = 16
)

// draw returns the picture of all that a recording shows, in the dark box of a terminal.
func draw(cast []byte) ([]byte, error) {
	lines := bufio.NewScanner(bytes.NewReader(cast))
	var head struct{ Version, Width int }
	if lines.Scan(); json.Unmarshal(lines.Bytes(), &head) != nil || head.Version != 2 || head.Width <= 0 {
		return nil, fmt.Errorf("line 1: %q, must be the head of an asciinema v2 file", lines.Text())
	}
	s := &screen{width: head.Width, lines: [][]cell{nil}}
	for n := 2; lines.Scan(); n++ {
		var text string
		err := json.Unmarshal(lines.Bytes(), &[]any{nil, nil, &text})
		if err = errors.Join(err, s.write(text)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	var texts bytes.Buffer
	height := 0
	for n, line := range s.lines {
		if spans := spans(line); spans != "" {
			fmt.Fprintf(&texts, "<text y=\"%d\">%s</text>\n", margin+n*lineHeight+15, spans)
			height = (n+1)*lineHeight + 2*margin
		}
	}
	width := float64(head.Width)*charWidth + 2*margin
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %[1]g %[2]d" width="%[1]g" height="%[2]d"
  font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace" font-size="14">
<title>A terminal with the command trueup</title>
<rect x="0.5" y="0.5" width="%[3]g" height="%[4]d" rx="8" fill="#0d1117" stroke="#444c56"/>
<g fill="#d1d7e0">
%[5]s</g>
</svg>
`, width, height, width-1, height-1, texts.Bytes()), lines.Err()
}

// words are what single spaces hold together: an SVG shows no two of them.
var words = regexp.MustCompile(`[^ ]+( [^ ]+)*`)

// spans returns a line as spans, each of one style and as wide as its columns in any font.
func spans(line []cell) string {
	var out strings.Builder
	for from, to := 0, 0; from < len(line); from = to {
		var run strings.Builder
		for ; to < len(line) && line[to].style == line[from].style; to++ {
			run.WriteRune(line[to].char)
		}
		for _, at := range words.FindAllStringIndex(run.String(), -1) {
			before, text := run.String()[:at[0]], run.String()[at[0]:at[1]]
			x, width := from+utf8.RuneCountInString(before), utf8.RuneCountInString(text)
			fmt.Fprintf(&out, `<tspan x="%.1f" textLength="%.1f"%s>`, margin+float64(x)*charWidth, float64(width)*charWidth,
				strings.Join(line[from].style[:], ""))
			xml.EscapeText(&out, []byte(text)) //nolint:errcheck // a builder takes everything
			out.WriteString("</tspan>")
		}
	}
	return out.String()
}
