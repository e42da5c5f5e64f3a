package simtest

import (
	"html/template"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// The lanes of a page, in the order of its columns.
const (
	laneOthers  = "others"
	laneProgram = "program"
	laneFaults  = "faults"
	laneEvents  = "events"
	laneClock   = "clock" // over all columns
	laneWrong   = "wrong" // likewise
)

// pageRow is a line of a trace.
type pageRow struct {
	At   string
	Gap  string // how long nothing happened before it; empty for less than 10 seconds
	Lane string
	Text string
}

var (
	traceLine = regexp.MustCompile(`^((?:\d+h)?(?:\d+m)?[\d.]+(?:s|ms|µs|ns)) (.*)$`)
	lifeLine  = regexp.MustCompile(`^life \d+: (.*)$`)
	watchLine = regexp.MustCompile(`^watch \d+: `)
	actorLine = regexp.MustCompile(`^[\w -]+: \w+ `)
)

// rows returns the lines of a trace, each in its lane.
func rows(trace string, known []applytest.Disturbance) (all []pageRow) {
	var last time.Duration
	for line := range strings.Lines(trace) {
		line = strings.TrimRight(line, "\n")
		m := traceLine.FindStringSubmatch(line)
		at, err := time.Duration(0), error(nil)
		if m != nil {
			at, err = time.ParseDuration(m[1])
		}
		if m == nil || err != nil {
			if len(all) > 0 { // a message of several lines
				all[len(all)-1].Text += "\n" + line
			}
			continue
		}
		row := pageRow{At: m[1], Lane: laneOf(m[2], known), Text: m[2]}
		if gap := at - last; gap >= 10*time.Second {
			row.Gap = gap.Round(time.Second).String()
		}
		last = at
		all = append(all, row)
	}
	return all
}

func laneOf(text string, known []applytest.Disturbance) string {
	if life := lifeLine.FindStringSubmatch(text); life != nil {
		if slices.ContainsFunc(known, func(d applytest.Disturbance) bool { return strings.HasPrefix(life[1], string(d)+" ") }) {
			return laneFaults
		}
		return laneProgram
	}
	switch {
	case strings.HasPrefix(text, "WRONG: "):
		return laneWrong
	case watchLine.MatchString(text):
		return laneEvents
	case strings.HasSuffix(text, " starts"):
		return laneFaults
	case actorLine.MatchString(text):
		return laneOthers
	}
	return laneClock
}

//nolint:gochecknoglobals // never changed
var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --line: light-dark(#d8dee4, #30363d); --faint: light-dark(#59636e, #9198a1);
  --fault: light-dark(#9a6700, #d29922); --wrong: light-dark(#d1242f, #f85149); --others: light-dark(#1a7f37, #3fb950);
  --events: light-dark(#0969da, #4493f8); --back: light-dark(#fff, #0d1117); }
body { font: 13px/1.45 ui-monospace, monospace; margin: 1.5rem; background: var(--back); }
h1 { font-size: 1.1rem; } pre { white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th { position: sticky; top: 0; background: var(--back); text-align: left; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; white-space: pre-wrap; }
th:first-child { width: 9rem; } td:first-child, .gap, .clock { color: var(--faint); }
.faults { color: var(--fault); } .others { color: var(--others); } .events { color: var(--events); }
.wrong { color: var(--wrong); font-weight: bold; }
</style></head><body>
<h1>{{.Title}}</h1>
<pre class="wrong">{{range .Wrong}}{{.}}
{{end}}</pre>
<pre>{{.Command}}</pre>
<table><thead><tr><th>time</th>{{range .Lanes}}<th class="{{.}}">{{.}}</th>{{end}}</tr></thead><tbody>
{{- range .Rows}}{{$row := .}}
{{- if .Gap}}<tr><td class="gap" colspan="5">{{.Gap}} later</td></tr>{{end}}
<tr><td>{{.At}}</td>
{{- if or (eq .Lane "clock") (eq .Lane "wrong")}}<td class="{{.Lane}}" colspan="4">{{.Text}}</td>
{{- else}}{{range $.Lanes}}<td class="{{.}}">{{if eq . $row.Lane}}{{$row.Text}}{{end}}</td>{{end}}{{end}}</tr>
{{- end}}
</tbody></table></body></html>
`))

// tracePage returns the trace of a history as a page of HTML: a row for each thing that happened,
// a column for each lane.
func tracePage(r *Report, title, command string, known []applytest.Disturbance) (string, error) {
	var b strings.Builder
	err := pageTemplate.Execute(&b, struct {
		Title, Command string
		Wrong          []string
		Lanes          []string
		Rows           []pageRow
	}{title, command, r.Wrong, []string{laneOthers, laneProgram, laneFaults, laneEvents}, rows(r.Trace, known)})
	return b.String(), err
}
